// The status page: fetches one document a second and updates the page.
import {
  POLICY_ASSUMED, ago, agentPage, alarmWord, at, departing, deviates, drawn, element, evidenceOf, figures, follow, look, part, put, rangeOf, required, sync,
  tell,
} from "./common.js";
import { makeAlarm } from "./alarm.js";
import { widest } from "./bands.js";

const seen = { firing: null, announced: [], told: null };

// Say which alarms have begun to fire, without numbers, which would soon be old ones; until they have all closed.
function announce(firing) {
  const ids = new Set(firing.map((alarm) => alarm.id));
  const fresh = seen.firing === null ? [] : firing.filter((alarm) => !seen.firing.has(alarm.id));
  if (fresh.length) {
    put(at("announce"), fresh.map(({ agent, formula, severity }) => `Alarm: ${formula.name} fires for ${agent}, ${severity}.`).join(" "));
    seen.announced = fresh.map((alarm) => alarm.id);
  } else if (!seen.announced.some((id) => ids.has(id))) {
    put(at("announce"), "");
  }
  seen.firing = ids;
}

// A card about something that is wrong: a line, its details, and, if it is about an agent, the way to its page.
function makeCard(show) {
  const [head, detail, link] = [element("p", "head word-blind"), element("p", "detail"), element("a", "page", "the agent's page")];
  return part(element("li", "blind", head, detail, link), (item) => {
    const shown = show(item);
    put(head, shown.head);
    put(detail, shown.detail);
    link.hidden = !shown.agent;
    if (shown.agent) link.href = agentPage(shown.agent);
  });
}

const makeBlind = () => makeCard(({ agent, formulas, reason, detail, words }) => (
  { head: `BLIND · ${agent} · ${formulas.join(", ")} · ${reason}`, detail: detail || words }));

// ---- whether the model fits ----

function aboutModel(test) {
  if (test.doubted === null) return "Unknown: the model has not been tested against any step yet.";
  if (test.doubted) return `IN DOUBT for all agents: their transitions contradict the model (${evidenceOf(test)}). Verdicts may be wrong. ${departing(test)}`;
  return `The transitions of all agents together do not contradict the model so far (${evidenceOf(test)}).`;
}

const makeDoubt = () => makeCard((doubt) => ({
  head: `IN DOUBT · ${doubt.agent} · its transitions contradict the model (${evidenceOf(doubt)}). Its verdicts may be wrong.`,
  detail: departing(doubt),
  agent: doubt.agent,
}));

const makeDeviating = () => makeCard((deviation) => (
  { head: `NOT ITS POLICY · ${deviation.agent} · ${deviates(deviation)}`, detail: POLICY_ASSUMED, agent: deviation.agent }));

const MODEL_WRONG = "Record the steps, and let the model learn them: cfmon run --record, cfmon model learn --append.";
const AGENT_WRONG = "What differs: its environment, its software, a second program under its name?";

function wrongOnes({ rows, agents, rows_rejected: rowsRejected, agents_rejected: agentsRejected }) {
  const found = rows.map((row) => {
    const beyond = row.impossible ? ` ${row.impossible} of these visits led where the model gives probability 0.` : "";
    return {
      name: `row ${row.state} ${row.action}`,
      head: `ROW OF THE MODEL WRONG · state ${row.state}, action ${row.action} (e-value 1e${row.log10_e.toFixed(1)})`,
      detail: `Next state ${row.successor}: in ${row.seen} of the last ${row.visits} visits, the model's probability is ${row.probability.toPrecision(3)}.${beyond} ${MODEL_WRONG}`,
    };
  });
  found.push(...agents.map((each) => ({
    name: `agent ${each.agent}`,
    head: `AGENT CONTRADICTS THE MODEL · ${each.agent} (e-value 1e${each.log10_e.toFixed(1)})`,
    detail: AGENT_WRONG,
  })));
  const more = [[rowsRejected - rows.length, "rows"], [agentsRejected - agents.length, "agents"]];
  for (const [count, what] of more) if (count > 0) found.push({ name: what, head: `${count} more ${what} contradict the model`, detail: "" });
  return found;
}

// ---- agents ----

const COLUMNS = ["agent", "formula", "alarm", "verdict", "value", "required", "last values", "step", "last message", ""];

function makeRow() {
  const cells = {};
  const row = element("tr");
  for (const name of COLUMNS) {
    cells[name] = element("td", ["value", "required", "step"].includes(name) ? "number" : "");
    cells[name].dataset.label = name;
    row.append(cells[name]);
  }
  const [page, value, band, curve, why] = [element("a", "page"), element("span"), element("small", "band"), makeCurve(), element("a", "page", "Why?")];
  cells.agent.append(page);
  cells.value.append(value, band);
  cells["last values"].append(curve);
  cells[""].append(why);
  return part(row, ({ agent, formula, first, now }) => {
    put(page, agent.name);
    page.href = agentPage(agent.name);
    cells.agent.classList.toggle("repeated", !first);
    put(cells.formula, formula.name);
    put(cells.alarm, alarmWord(formula));
    cells.alarm.className = `word-${alarmWord(formula).split(",")[0]}`;
    put(cells.verdict, formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes");
    cells.verdict.className = formula.blind ? "word-blind" : "";
    put(value, figures(formula));
    put(band, widest(formula));
    put(cells.required, required(formula.threshold));
    curve.render(formula);
    put(cells.step, formula.seq === null ? "" : String(formula.seq));
    put(cells["last message"], ago(agent.last_message, now));
    why.href = `${agentPage(agent.name)}#formula-${formula.name}`;
    why.setAttribute("aria-label", `Why? Explain ${formula.name} of ${agent.name}`);
  });
}

// The last values: nominal, and, dashed, the alternative. Gaps: between episodes, and while blind.
function makeCurve() {
  const [required, instead, value, dot] = [drawn("line", {}), drawn("path", { class: "instead" }), drawn("path", {}), drawn("circle", { r: 2.6 })];
  const curve = drawn("svg", { class: "curve", viewBox: "0 0 150 34", role: "img" });
  curve.append(required, instead, value, dot);
  return part(curve, ({ history, threshold }) => {
    const known = history.flat().filter((value) => value !== null);
    const bound = threshold?.bound ?? null;
    const [low, high] = rangeOf(known, bound);
    const x = (index) => (150 * index) / Math.max(history.length - 1, 1);
    const y = (value) => 32 - (30 * (value - low)) / (high - low);
    const path = (which) => {
      let drawn = "";
      history.forEach((both, index) => {
        if (both[which] === null) return;
        const continues = index > 0 && history[index - 1][which] !== null;
        drawn += `${continues ? "L" : "M"}${x(index).toFixed(1)} ${y(both[which]).toFixed(1)}`;
      });
      return drawn;
    };
    instead.setAttribute("d", path(1));
    value.setAttribute("d", path(0));
    required.setAttribute("visibility", bound === null ? "hidden" : "visible");
    for (const [name, number] of [["x1", 0], ["x2", 150], ["y1", y(bound ?? low)], ["y2", y(bound ?? low)]]) required.setAttribute(name, number);
    const last = history.length ? history[history.length - 1][0] : null;
    dot.setAttribute("visibility", last === null ? "hidden" : "visible");
    if (last !== null) {
      dot.setAttribute("cx", x(history.length - 1));
      dot.setAttribute("cy", y(last));
    }
    const range = known.length ? `from ${Math.min(...known).toFixed(2)} to ${Math.max(...known).toFixed(2)}` : "none yet";
    curve.setAttribute("aria-label", `last values: ${range}`);
  });
}

function makeWatched() {
  const [name, text] = [element("strong"), element("code")];
  return part(element("li", "", name, " ", text), (formula) => {
    put(name, formula.name);
    put(text, formula.text);
  });
}

// ---- the whole page ----

function show(told) {
  const { status, now } = told;
  put(at("state"), told.problem || `monitoring ${told.count.agents} agent${told.count.agents === 1 ? "" : "s"}`);
  const model = `${status.model.name} ${status.model.sha256.slice(0, 12)}`;
  const shard = status.shard ? ` · only the agents of shard ${status.shard}` : "";
  put(at("about"), `${status.client_id}${shard} at ${status.broker} · model ${model} · version ${status.version}`);
  document.title = `${told.count.firing ? `(${told.count.firing}) ` : told.problem ? "(?) " : ""}Counterfactual monitor`;

  announce(told.firing);
  sync(at("firing"), told.firing, (alarm) => alarm.id, makeAlarm);
  sync(at("recent"), told.recent, (alarm) => `${alarm.id} ${alarm.revision}`, makeAlarm);
  sync(at("blind"), told.blind, (row) => `${row.agent} ${row.reason}`, makeBlind);
  sync(at("doubt"), told.doubt.agents, (doubt) => doubt.agent, makeDoubt);
  sync(at("deviating"), told.deviating, (deviation) => deviation.agent, makeDeviating);
  sync(at("wrong"), wrongOnes(told.contradictions), (wrong) => wrong.name, () => makeCard((wrong) => wrong));
  put(at("doubt-model"), aboutModel(told.doubt.model));
  at("doubt-model").className = told.doubt.model.doubted === false ? "quiet" : "unknown";
  const rows = told.agents.flatMap((agent) =>
    agent.formulas.map((formula, index) => ({ agent, formula, first: index === 0, now })));
  sync(at("agents"), rows, (row) => `${row.agent.name} ${row.formula.name}`, makeRow);
  sync(at("formulas"), told.formulas, (formula) => formula.name, makeWatched);
  for (const name of ["firing", "blind", "agents"]) {
    put(at(`${name}-count`), told.count[name] ? `(${told.count[name]})` : "");
  }
  const more = told.count.found - told.agents.length;
  put(at("agents-more"), more > 0 ? `${more} more agents: find them by name.` : "");
  seen.told = told;
}

// Say "none" only if that is known.
function judge(lost) {
  const told = seen.told;
  if (told === null) {
    for (const name of ["firing", "blind", "agents", "recent"]) tell(`${name}-none`, true, "", lost);
    return;
  }
  const { agents } = told.count;
  // Idle agents need no evaluation; a model in doubt still gives verdicts, and is reported below.
  const blind = told.blind.some((group) => !["idle", "model_doubt"].includes(group.reason)) || told.count.blind > told.blind.length;
  const unseen = lost || told.problem || (agents ? "" : "no agent has sent a step yet, so nothing is monitored");
  const unanswered = blind ? `some formulas are blind, see below` : "";
  tell("firing-none", !told.firing.length, "No alarm is firing.", unseen || unanswered);
  tell("blind-none", !told.blind.length, "No formula is blind.", unseen);
  tell("agents-none", !told.agents.length, agents ? "No agent matches." : "No agent yet: waiting for steps on the configured topic.", lost);
  tell("recent-none", !told.recent.length, "No alarm has ended yet.", lost || told.problem);
  at("state").classList.toggle("wrong", Boolean(lost || told.problem));
}

at("search").addEventListener("input", look);
follow(() => `api/overview?search=${encodeURIComponent(at("search").value)}`, show, judge);
