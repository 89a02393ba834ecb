// The page of one agent: the value of each formula over time with its threshold, and the agent's alarms.
import {
  POLICY_ASSUMED, ago, alarmWord, at, departing, deviates, element, evidenceOf, figures, follow, makeAlarm, moment, number, put, rangeOf, required, sync, tell, updateAlarm,
} from "./common.js";
import { makeBands, updateBands } from "./bands.js";
import { makeRecourse, updateRecourse } from "./recourse.js";
import { makeReliability, updateReliability } from "./reliability.js";

const name = new URLSearchParams(location.search).get("name") ?? "";
const seen = { told: null };
put(at("title"), name || "No agent selected");
document.title = `${name} · Counterfactual monitor`;

const FACTS = ["alarm", "verdict", "value", "required", "bounds", "step", "time"];

const HEIGHT = 240;

function makeFormula(formula) {
  const facts = element("dl", "facts");
  for (const fact of FACTS) facts.append(element("div", "", element("dt", "", fact), element("dd")));
  const chart = element("div", "chart");
  chart.setAttribute("role", "img");
  const rows = element("tbody");
  const heads = ["takeover", "nominal", "alternative"].map((text) => {
    const head = element("th", "number", text);
    head.scope = "col";
    return head;
  });
  const caption = element("caption", "", "Values had the alternative taken over at each of these steps");
  const table = element("table", "profile", caption, element("thead", "", element("tr", "", ...heads)), rows);
  const card = element("section", "formula", element("h2", "", formula.name), element("p", "summary"), facts, chart);
  card.append(element("p", "range quiet"), table, makeRecourse(), makeBands(), makeReliability());
  card.append(element("p", "quiet", element("code", "", formula.text)));
  card.id = `formula-${formula.name}`;
  return card;
}

function updateFormula(card, { formula, alarms, now }) {
  put(card.querySelector(".summary"), formula.summary || "No verdict: between episodes.");
  const { bounds, name: whose } = formula.alternative ?? { bounds: formula.bounds, name: "" };
  const facts = {
    alarm: alarmWord(formula),
    verdict: formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes",
    value: formula.alternative ? `${figures(formula)}${formula.value === null ? "" : ` (nominal vs ${formula.alternative.name})`}` : figures(formula),
    required: required(formula.threshold),
    bounds: bounds ? `${number(bounds[0])} to ${number(bounds[1])}${whose && ` (${whose})`}` : "",
    step: formula.seq === null ? "" : String(formula.seq),
    time: formula.time_unix === null ? "" : moment(formula.time_unix),
  };
  const cells = [...card.querySelectorAll("dd")];
  FACTS.forEach((fact, index) => {
    put(cells[index], facts[fact]);
    cells[index].parentElement.hidden = facts[fact] === "";
  });
  cells[0].className = `word-${alarmWord(formula).split(",")[0]}`;
  cells[1].className = formula.blind ? "word-blind" : "";
  const table = card.querySelector("table");  // the first: the profile
  table.hidden = formula.profile.length === 0;
  sync(table.querySelector("tbody"), formula.profile, (row) => String(row.offset),
    () => element("tr", "", element("td", "number"), element("td", "number"), element("td", "number")),
    (row, at_offset) => {
      put(row.children[0], at_offset.offset === 0 ? "now" : `${at_offset.offset} step${at_offset.offset === 1 ? "" : "s"} ago`);
      put(row.children[1], number(at_offset.nominal));
      put(row.children[2], number(at_offset.alternative));
    });
  updateRecourse(card.querySelector(".recourse"), formula);
  updateBands(card.querySelector(".bands"), formula);
  updateReliability(card.querySelector(".reliability"), formula);
  draw(card, formula, alarms.filter((alarm) => alarm.formula.name === formula.name), now);
}

// ---- the chart ----

function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// Mark the time in which an alarm was firing: a tint, a bar along the axis, and a line at its start.
function markAlarms(card) {
  return (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    for (const alarm of card.alarms) {
      const from = Math.max(chart.valToPos(alarm.began_unix ?? 0, "x", true), bbox.left);
      const to = Math.min(chart.valToPos(alarm.over_unix ?? (alarm.state === "firing" ? card.now : alarm.began_unix ?? 0), "x", true), bbox.left + bbox.width);
      if (to < bbox.left || from > bbox.left + bbox.width) continue;
      ctx.fillStyle = colour("--firing-page");
      ctx.fillRect(from, bbox.top, Math.max(to - from, 2), bbox.height);
      ctx.fillStyle = colour("--firing");
      ctx.fillRect(from, bbox.top + bbox.height - 6, Math.max(to - from, 4), 6);
      ctx.fillRect(from, bbox.top, 2, bbox.height);
    }
    ctx.restore();
  };
}

function makeChart(card, formula) {
  const times = (chart, moments) => {
    const long = chart.scales.x.max - chart.scales.x.min > 86_400;
    return moments.map((seconds) => moment(seconds).slice(...(long ? [0, 16] : [11, 19])));
  };
  const axis = () => ({ stroke: colour("--ink"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });
  const line = (label, stroke, dash) => ({ label, stroke: colour(stroke), width: 2, dash, value: (_, value) => number(value) });
  const series = [{ label: "time", value: (_, seconds) => (seconds === null ? "" : moment(seconds)) }, line("value", "--own")];
  if (formula.alternative) series.push(line(formula.alternative.name, "--instead", [8, 5]));
  if (formula.threshold) series.push(line(`required ${formula.threshold.comparison}`, "--ink", [2, 4]));
  const options = {
    width: card.querySelector(".chart").clientWidth,
    height: HEIGHT,
    series,
    axes: [{ ...axis(), values: times, space: 100, incrs: [1, 5, 10, 30, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 604_800] }, { ...axis(), size: 60 }],
    scales: {
      x: { range: (_, from, to) => (to - from < 4 ? [from - 2, to + 2] : [from, to]) },
      y: { range: () => card.range },
    },
    hooks: { drawClear: [markAlarms(card)] },
  };
  return new uPlot(options, [[]], card.querySelector(".chart"));
}

function draw(card, formula, alarms, now) {
  const { time, value, alternative } = formula.curve;
  const threshold = formula.threshold?.bound ?? null;
  const chart = card.querySelector(".chart");
  chart.hidden = time.length === 0;
  if (chart.hidden) return;
  if (!card.isConnected) {  // it has no width yet
    requestAnimationFrame(() => draw(card, formula, alarms, now));
    return;
  }
  card.alarms = alarms;
  card.now = now;
  card.range = rangeOf([...value, ...alternative], threshold);
  card.chart ??= makeChart(card, formula);
  const data = [time, value];
  if (formula.alternative) data.push(alternative);
  if (formula.threshold) data.push(time.map(() => threshold));
  card.chart.setData(data);
  const known = value.filter((one) => one !== null);
  const low = Math.min(...known);
  const high = Math.max(...known);
  const values = known.length ? `values from ${number(low)} to ${number(high)}` : "no value";
  const needed = threshold === null ? "" : `; required ${required(formula.threshold)}`;
  const description = `${values} from ${moment(time[0])} to ${moment(time[time.length - 1])}${needed}; alarms in the list: ${alarms.length}`;
  chart.setAttribute("aria-label", description);
  put(card.querySelector(".range"), description);
}

addEventListener("resize", () => {
  for (const card of document.querySelectorAll(".formula")) {
    card.chart?.setSize({ width: card.querySelector(".chart").clientWidth, height: HEIGHT });
  }
});

// ---- the whole page ----

function aboutModel(told) {
  const { doubt, model_doubt: model } = told;
  if (doubt.doubted) return `IN DOUBT: this agent's transitions contradict the model (${evidenceOf(doubt)}). Its verdicts may be wrong. ${departing(doubt)}`;
  if (model.doubted) return `IN DOUBT: the transitions of all agents together contradict the model (${evidenceOf(model)}). Verdicts may be wrong.`;
  return "";
}

function show(told) {
  if (!told.known) put(at("state"), "The monitor does not know this agent (any more): it is not monitored. Its alarms are below.");
  else put(at("state"), told.problem || `last message ${ago(told.last_message, told.now)}${told.episode === null ? "" : `, episode ${told.episode}`}`);
  put(at("deviates"), told.known && told.deviation.notable ? `NOT ITS POLICY: ${deviates(told.deviation)}. ${POLICY_ASSUMED}` : "");
  at("deviates").hidden = !at("deviates").textContent;
  put(at("doubt"), told.known ? aboutModel(told) : "");
  at("doubt").hidden = !at("doubt").textContent;
  const rows = told.formulas.map((formula) => ({ formula, alarms: told.alarms, now: told.now }));
  const fresh = seen.told === null;
  sync(at("formulas"), rows, (row) => row.formula.name, (row) => makeFormula(row.formula), updateFormula);
  sync(at("alarms"), told.alarms, (alarm) => alarm.id, makeAlarm, updateAlarm);
  const firing = told.alarms.filter((alarm) => alarm.state === "firing").length;
  document.title = `${firing ? `(${firing}) ` : told.problem || !told.known ? "(?) " : ""}${name} · Counterfactual monitor`;
  seen.told = told;
  if (fresh && location.hash) at(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

function judge(lost) {
  const told = seen.told;
  tell("alarms-none", !told?.alarms.length, "This agent has no alarm in the list.", lost);
  tell("formulas-none", !told?.formulas.length, "No formula is configured.", lost || (told && !told.known ? "this agent is not monitored" : told?.problem));
  at("state").classList.toggle("wrong", Boolean(lost || !told?.known || told.problem));
}

at("all").href = `alarms?agent=${encodeURIComponent(name)}`;
at("data").href = `api/agents/${encodeURIComponent(name)}/history`;
follow(() => `api/agents/${encodeURIComponent(name)}/history`, show, judge);
