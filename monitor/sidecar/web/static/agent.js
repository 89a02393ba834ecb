// The page of one agent: the value of each formula over time with its threshold, and the agent's alarms.
import {
  POLICY_ASSUMED, ago, alarmWord, at, between, compared, departing, deviates, element, evidenceOf, follow, makeDetails, makeFacts, makeMore, makeSentence,
  makeShape, moment, number, part, put, rangeOf, required, sync, tell,
} from "./common.js";
import { makeAlarm, makeProfile } from "./alarm.js";
import { makeBands } from "./bands.js";
import { makeRecourse } from "./recourse.js";
import { makeReliability } from "./reliability.js";

const name = new URLSearchParams(location.search).get("name") ?? "";
const seen = { told: null };
put(at("title"), name || "No agent selected");
document.title = `${name} · Counterfactual monitor`;

const HEIGHT = 240;

function makeFormula({ formula: { name: title } }) {
  const [shape, summary, details, facts, chart, text] = [makeShape(), makeSentence("summary"), makeDetails(), makeFacts(FACTS), makeChart(), element("code")];
  const parts = [makeProfile(), makeRecourse(), makeBands(), makeReliability()];
  const [profile, ...others] = parts;
  const more = makeMore(details, ...parts, element("p", "quiet", text));
  const card = element("section", "formula", element("h2", "", shape, ` ${title}`), summary, facts, chart, more);
  card.id = `formula-${title}`;
  card.more = more;
  return part(card, (told) => {
    const { formula } = told;
    card.dataset.state = formula.state;
    shape.render(formula.state);
    shape.className = `shape word-${formula.state}`;
    summary.render(formula.summary || "No verdict: between episodes.");
    details.render(formula.details);
    facts.render(factsOf(formula));
    facts.cells.get("alarm").className = `word-${formula.state}`;
    facts.cells.get("verdict").className = formula.blind ? "word-blind" : "";
    chart.render(told);
    profile.render(formula.profile);
    for (const other of others) other.render(formula);
    put(text, formula.text);
  });
}

const FACTS = ["alarm", "verdict", "value", "required", "bounds", "step", "time"];

function factsOf(formula) {
  const { bounds, name: whose } = formula.alternative ?? { bounds: formula.bounds, name: "" };
  return {
    alarm: alarmWord(formula),
    verdict: formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes",
    value: compared(formula),
    required: required(formula.threshold),
    bounds: bounds ? `${between(bounds)}${whose && ` (${whose})`}` : "",
    step: formula.seq === null ? "" : String(formula.seq),
    time: formula.time_unix === null ? "" : moment(formula.time_unix),
  };
}

// ---- the chart ----

function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// Mark the time in which an alarm was firing: a tint, a bar along the axis, and a line at its start.
function markAlarms(chart, alarms, now) {
  const { ctx, bbox } = chart;
  ctx.save();
  for (const alarm of alarms) {
    const from = Math.max(chart.valToPos(alarm.began_unix ?? 0, "x", true), bbox.left);
    const to = Math.min(chart.valToPos(alarm.over_unix ?? (alarm.state === "firing" ? now : alarm.began_unix ?? 0), "x", true), bbox.left + bbox.width);
    if (to < bbox.left || from > bbox.left + bbox.width) continue;
    ctx.fillStyle = colour("--firing-page");
    ctx.fillRect(from, bbox.top, Math.max(to - from, 2), bbox.height);
    ctx.fillStyle = colour("--firing");
    ctx.fillRect(from, bbox.top + bbox.height - 6, Math.max(to - from, 4), 6);
    ctx.fillRect(from, bbox.top, 2, bbox.height);
  }
  ctx.restore();
}

function newChart(canvas, series, shown) {
  const times = (chart, moments) => {
    const long = chart.scales.x.max - chart.scales.x.min > 86_400;
    return moments.map((seconds) => moment(seconds).slice(...(long ? [0, 16] : [11, 19])));
  };
  const axis = () => ({ stroke: colour("--ink"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });
  const lines = series.map(([label, stroke, dash]) => ({ label, stroke: colour(stroke), width: 2, dash, value: (_, value) => number(value) }));
  const options = {
    width: canvas.clientWidth,
    height: HEIGHT,
    series: [{ label: "time", value: (_, seconds) => (seconds === null ? "" : moment(seconds)) }, ...lines],
    axes: [{ ...axis(), values: times, space: 100, incrs: [1, 5, 10, 30, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 604_800] }, { ...axis(), size: 60 }],
    scales: {
      x: { range: (_, from, to) => (to - from < 4 ? [from - 2, to + 2] : [from, to]) },
      y: { range: () => shown.range },
    },
    hooks: { drawClear: [(chart) => markAlarms(chart, shown.alarms, shown.now)] },
  };
  return new uPlot(options, [[]], canvas);
}

// The curves of a formula, and the same in words.
function makeChart() {
  const [canvas, words] = [element("div", "chart"), element("p", "range quiet")];
  canvas.setAttribute("role", "img");
  const shown = { chart: null, series: "", alarms: [], now: 0, range: [0, 1] };
  const render = (told) => {
    const { formula, alarms, now } = told;
    const { time, value, alternative } = formula.curve;
    const threshold = formula.threshold?.bound ?? null;
    canvas.hidden = words.hidden = time.length === 0;
    if (canvas.hidden) return;
    if (!canvas.isConnected) {  // it has no width yet
      requestAnimationFrame(() => render(told));
      return;
    }
    shown.alarms = alarms.filter((alarm) => alarm.formula.name === formula.name);
    shown.now = now;
    shown.range = rangeOf([...value, ...alternative], threshold);
    const lines = [["value", "--own", undefined, value]];
    if (formula.alternative) lines.push([formula.alternative.name, "--instead", [8, 5], alternative]);
    if (formula.threshold) lines.push(["required", "--ink", [2, 4], time.map(() => threshold)]);
    const series = lines.map(([label]) => label).join("\n");
    if (series !== shown.series) {  // at first, and when the configuration has changed
      shown.chart?.destroy();
      shown.chart = newChart(canvas, lines, shown);
      shown.series = series;
    }
    shown.chart.setData([time, ...lines.map(([, , , data]) => data)]);
    const known = value.filter((one) => one !== null);
    const values = known.length ? `values from ${number(Math.min(...known))} to ${number(Math.max(...known))}` : "no value";
    const needed = threshold === null ? "" : `; required ${required(formula.threshold)}`;
    const description = `${values} from ${moment(time[0])} to ${moment(time[time.length - 1])}${needed}; alarms in the list: ${shown.alarms.length}`;
    canvas.setAttribute("aria-label", description);
    put(words, description);
  };
  addEventListener("resize", () => shown.chart?.setSize({ width: canvas.clientWidth, height: HEIGHT }));
  return part(element("div", "", canvas, words), render);
}

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
  sync(at("formulas"), rows, (row) => row.formula.name, makeFormula);
  sync(at("alarms"), told.alarms, (alarm) => alarm.id, makeAlarm);
  const firing = told.alarms.filter((alarm) => alarm.state === "firing").length;
  document.title = `${firing ? `(${firing}) ` : told.problem || !told.known ? "(?) " : ""}${name} · Counterfactual monitor`;
  seen.told = told;
  const asked = fresh && location.hash ? at(decodeURIComponent(location.hash.slice(1))) : null;
  if (asked?.more) asked.more.open = true;
  asked?.scrollIntoView();
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
