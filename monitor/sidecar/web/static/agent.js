// The page of one agent: each formula in a sentence and over time, those that need somebody first, and the agent's alarms.
import {
  POLICY_ASSUMED, ago, at, between, blindSince, causalModels, departing, deviates, element, evidenceOf, finding, follow, grouped, isMoment, length, makeDetails, makeFacts, makeMore, makeSentence, makeShape,
  many, moment, part, put, repeatsOf, required, rowOf, shortened, span, sync, tell, values, verdictOf,
} from "./common.js";
import { course, makeAlarm, makeInstructions, makeProfile, makeRunbook, makeSure } from "./alarm.js";
import { makeBands } from "./bands.js";
import { WINDOW, axesOf, makeChart } from "./charts.js";
import { makeRecourse } from "./recourse.js";
import { makeReliability } from "./reliability.js";

const name = new URLSearchParams(location.search).get("name") ?? "";
const seen = { told: null };
put(at("title"), name || "No agent selected");
document.title = `${name} · Counterfactual monitor`;

function makeFormula({ formula: { name: title } }) {
  const [shape, word, since, summary, details] = [makeShape(), element("span"), element("p", "quiet"), makeSentence("summary"), makeDetails()];
  const [how, sure, runbook, facts] = [makeInstructions(), makeSure(), makeRunbook(), makeFacts()];
  const [chart, text] = [makeChart(), element("code")];
  const parts = [makeProfile(), makeRecourse(), makeBands(), makeReliability()];
  const [profile, ...others] = parts;
  const more = makeMore(facts, details, ...parts, element("p", "quiet", text));
  const card = element("section", "formula", element("h2", "", shape, ` ${title} · `, word), since, summary, how, sure, runbook, chart, more);
  card.id = `formula-${title}`;
  card.more = more;
  return part(card, ({ formula, alarms, axes }) => {
    card.dataset.state = formula.state;
    shape.render(formula.state);
    shape.className = `shape word-${formula.state}`;
    put(word, formula.state);
    word.className = `word-${formula.state}`;
    put(since, sinceOf(formula, alarms, axes.to));
    since.className = `quiet${formula.state === "firing" ? " word-firing" : ""}`;
    const firing = alarms.find(({ state }) => state === "firing");
    const said = { summary: formula.summary, state: firing?.state };
    summary.render(finding(said) || "No verdict: between episodes.");
    card.classList.toggle("firing", formula.state === "firing");
    for (const about of [how, sure, runbook]) about.render(firing ?? {});
    details.render(formula.details);
    facts.render([...values(formula), ["required", required(formula.threshold)], ...(firing ? [course(firing), causalModels(said)] : []), ...factsOf(formula)]);
    chart.render({ formula, alarms, axes });
    profile.render(formula.profile);
    for (const other of others) other.render(formula);
    put(text, formula.text);
  });
}

// Since when its alarm fires, and how grave that is; else its verdict.
function sinceOf(formula, alarms, now) {
  const firing = alarms.find(({ state }) => state === "firing");
  const blind = blindSince(formula) && `; ${blindSince(formula)}`;
  if (!firing) return `${verdictOf(formula)}${blind}`;
  const long = isMoment(firing.since_unix) ? `, for ${span(length(firing.since_unix, now))}` : "";
  return `${firing.severity}, since ${moment(firing.since_unix)}${long}${blind}`;
}

function factsOf(formula) {
  const { bounds, name: whose } = formula.alternative ?? { bounds: formula.bounds, name: "" };
  return [
    ["verdict", formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes"],
    ["alarm", formula.alarm],
    ["fires after", formula.fires_after && many(formula.fires_after, "bad verdict")],
    ["bounds", bounds ? `${between(bounds)}${whose && ` (${whose})`}` : ""],
    ["step", formula.seq === null ? "" : String(formula.seq)],
    ["time", formula.time_unix === null ? "" : moment(formula.time_unix)],
  ];
}

// ---- the whole page ----

// Other agents in a state that needs somebody.
function makeOther() {
  const [shape, text] = [makeShape(), element("span")];
  return part(element("span", "", shape, " ", text), ([state, names]) => {
    shape.render(state);
    shape.parentElement.className = `word-${state}`;
    put(text, `${state}: ${shortened(names)} `);
  });
}

function aboutModel(told) {
  const { doubt, model_doubt: model } = told;
  if (doubt.doubted) return `IN DOUBT: this agent's transitions contradict the model (${evidenceOf(doubt)}). Its verdicts may be wrong. ${departing(doubt)}`;
  if (model.doubted) return `IN DOUBT: the transitions of all agents together contradict the model (${evidenceOf(model)}). Verdicts may be wrong.`;
  return "";
}

// The shortest time that shows since when the alarms fire, and some value; in seconds, 0: all.
function spanFor({ alarms, formulas, now }) {
  const starts = alarms.filter(({ state }) => state === "firing").map((alarm) => alarm.since_unix).filter(isMoment);
  const values = formulas.flatMap(({ curve: { time, value } }) => time.filter((_, n) => value[n] !== null));
  const first = Math.min(...starts, values.reduce((one, two) => Math.max(one, two), 0) || now);
  return [WINDOW, 3600, 86_400].find((seconds) => first >= now - seconds) ?? 0;
}

// The alarms; one that fires says how often its formula did.
function shownAlarms({ alarms, older_alarms: older, now, model_doubt: modelTest }) {
  const before = grouped(alarms, (alarm) => alarm.formula.name);
  return alarms.map((alarm) => ({ ...alarm, now, modelTest, repeats: alarm.state === "firing" ? repeatsOf(before.get(alarm.formula.name), now, older) : "" }));
}

// The formulas and firing alarms, over the time that is chosen.
function showFormulas(told) {
  const alarms = grouped(told.alarms, (alarm) => alarm.formula.name);
  const axes = axesOf(told.formulas, told.now, Number(at("span").value) || null);
  const rows = told.formulas.map((formula, n) => (
    { agent: told, formula, alarms: alarms.get(formula.name) ?? [], axes: axes[n] }));
  for (const alarm of told.alarms.filter(({ state }) => state === "firing")) Object.assign(alarm, rowOf(alarm, rows));
  sync(at("formulas"), rows, (row) => row.formula.name, makeFormula);
}

function show(answer) {
  const told = { ...answer, alarms: shownAlarms(answer) };
  put(at("now"), moment(told.now));
  if (!told.known) put(at("state"), "The monitor does not know this agent (any more): it is not monitored. Its alarms are below.");
  else put(at("state"), told.problem || `last message ${ago(told.last_message, told.now)}${told.episode === null ? "" : `, episode ${told.episode}`}`);
  const others = Object.entries(told.others).filter(([, names]) => names.length > 0);
  sync(at("others"), others, ([state]) => state, makeOther);
  put(at("deviates"), told.known && told.deviation.notable ? `NOT ITS POLICY: ${deviates(told.deviation)}. ${POLICY_ASSUMED}` : "");
  at("deviates").hidden = !at("deviates").textContent;
  put(at("doubt"), told.known ? aboutModel(told) : "");
  at("doubt").hidden = !at("doubt").textContent;
  const fresh = seen.told === null;
  if (fresh) at("span").value = String(spanFor(told));
  showFormulas(told);
  sync(at("alarms"), told.alarms, (alarm) => alarm.id, makeAlarm);
  const firing = told.alarms.filter((alarm) => alarm.state === "firing").length;
  document.title = `${firing ? `(${firing}) ` : told.problem || !told.known ? "(?) " : ""}${name} · Counterfactual monitor`;
  seen.told = told;
  const asked = fresh ? at(anchor()) : null;
  if (asked?.more) asked.more.open = true;
  asked?.scrollIntoView();
}

// The id after "#"; none if it is malformed, as by hand.
function anchor() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function judge(lost) {
  const told = seen.told;
  tell("alarms-none", !told?.alarms.length, "This agent has no alarm in the list.", lost);
  at("shown").hidden = !told?.formulas.length;
  tell("formulas-none", !told?.formulas.length, "No formula is configured.", lost || (told && !told.known ? "this agent is not monitored" : told?.problem));
  at("state").classList.toggle("wrong", Boolean(lost || !told?.known || told.problem));
}

at("span").addEventListener("change", () => seen.told && showFormulas(seen.told));
at("all").href = `alarms?agent=${encodeURIComponent(name)}`;
at("data").href = `api/agents/${encodeURIComponent(name)}/history`;
follow(() => `api/agents/${encodeURIComponent(name)}/history`, show, judge);
