// The status page: fetches one document a second and updates the page.
import {
  POLICY_ASSUMED, ago, agentPage, alarmWord, at, departing, deviates, element, evidenceOf, figures, follow, look, makeAlarm, put, rangeOf, required, sync, tell, updateAlarm,
} from "./common.js";
import { widest } from "./bands.js";

const seen = { firing: null, told: null };

function announce(firing) {
  const ids = new Set(firing.map((alarm) => alarm.id));
  const fresh = seen.firing === null ? [] : firing.filter((alarm) => !seen.firing.has(alarm.id));
  if (fresh.length) at("announce").textContent = fresh.map((alarm) => `Alarm. ${alarm.summary}`).join(" ");
  seen.firing = ids;
}

// ---- blind formulas ----

function makeBlind() {
  return element("li", "blind", element("p", "head word-blind"), element("p", "detail"));
}

function updateBlind(card, row) {
  put(card.querySelector(".head"), `BLIND · ${row.agent} · ${row.formulas.join(", ")} · ${row.reason}`);
  put(card.querySelector(".detail"), row.detail || row.words);
}

// ---- whether the model fits ----

function aboutModel(test) {
  if (test.doubted === null) return "Unknown: the model has not been tested against any step yet.";
  if (test.doubted) return `IN DOUBT for all agents: their transitions contradict the model (${evidenceOf(test)}). Verdicts may be wrong. ${departing(test)}`;
  return `The transitions of all agents together do not contradict the model so far (${evidenceOf(test)}).`;
}

function makeDoubt() {
  return element("li", "blind", element("p", "head word-blind"), element("p", "detail"), element("a", "page", "the agent's page"));
}

function updateDoubt(card, doubt) {
  put(card.querySelector(".head"), `IN DOUBT · ${doubt.agent} · its transitions contradict the model (${evidenceOf(doubt)}). Its verdicts may be wrong.`);
  put(card.querySelector(".detail"), departing(doubt));
  card.querySelector("a").href = agentPage(doubt.agent);
}

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

function makeWrong() {
  return element("li", "blind", element("p", "head word-blind"), element("p", "detail"));
}

function updateWrong(card, wrong) {
  put(card.querySelector(".head"), wrong.head);
  put(card.querySelector(".detail"), wrong.detail);
}

function updateDeviating(card, deviation) {
  put(card.querySelector(".head"), `NOT ITS POLICY · ${deviation.agent} · ${deviates(deviation)}`);
  put(card.querySelector(".detail"), POLICY_ASSUMED);
  card.querySelector("a").href = agentPage(deviation.agent);
}

// ---- agents ----

const COLUMNS = ["agent", "formula", "alarm", "verdict", "value", "required", "last values", "step", "last message", ""];

function makeRow() {
  const row = element("tr");
  for (const name of COLUMNS) {
    const cell = element("td", ["value", "required", "step"].includes(name) ? "number" : "");
    cell.dataset.label = name;
    row.append(cell);
  }
  row.children[0].append(element("a", "page"));
  row.children[4].append(element("span"), element("small", "band"));
  row.children[6].innerHTML = '<svg class="curve" viewBox="0 0 150 34" role="img"><line/><path class="instead"/><path/><circle r="2.6"/></svg>';
  row.children[9].append(element("a", "page", "Why?"));
  return row;
}

function updateRow(row, { agent, formula, first, now }) {
  const cells = row.children;
  put(cells[0].firstElementChild, agent.name);
  cells[0].firstElementChild.href = agentPage(agent.name);
  cells[0].classList.toggle("repeated", !first);
  put(cells[1], formula.name);
  put(cells[2], alarmWord(formula));
  cells[2].className = `word-${alarmWord(formula).split(",")[0]}`;
  put(cells[3], formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes");
  cells[3].className = formula.blind ? "word-blind" : "";
  put(cells[4].firstElementChild, figures(formula));
  put(cells[4].lastElementChild, widest(formula));
  put(cells[5], required(formula.threshold));
  draw(cells[6].firstElementChild, formula.history, formula.threshold?.bound ?? null);
  put(cells[7], formula.seq === null ? "" : String(formula.seq));
  put(cells[8], ago(agent.last_message, now));
  const why = cells[9].firstElementChild;
  why.href = `${agentPage(agent.name)}#formula-${formula.name}`;
  why.setAttribute("aria-label", `Why? Explain ${formula.name} of ${agent.name}`);
}

// Draw the nominal value and, dashed, the alternative. Gaps: between episodes, and while blind.
function draw(curve, history, threshold) {
  const known = history.flat().filter((value) => value !== null);
  const [low, high] = rangeOf(known, threshold);
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
  const [line, instead, value, dot] = curve.children;
  instead.setAttribute("d", path(1));
  value.setAttribute("d", path(0));
  line.setAttribute("visibility", threshold === null ? "hidden" : "visible");
  for (const [name, number] of [["x1", 0], ["x2", 150], ["y1", y(threshold ?? low)], ["y2", y(threshold ?? low)]]) {
    line.setAttribute(name, number);
  }
  const last = history.length ? history[history.length - 1][0] : null;
  dot.setAttribute("visibility", last === null ? "hidden" : "visible");
  if (last !== null) {
    dot.setAttribute("cx", x(history.length - 1));
    dot.setAttribute("cy", y(last));
  }
  const range = known.length ? `from ${Math.min(...known).toFixed(2)} to ${Math.max(...known).toFixed(2)}` : "none yet";
  curve.setAttribute("aria-label", `last values: ${range}`);
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
  sync(at("firing"), told.firing, (alarm) => alarm.id, makeAlarm, updateAlarm);
  sync(at("recent"), told.recent, (alarm) => `${alarm.id} ${alarm.revision}`, makeAlarm, updateAlarm);
  sync(at("blind"), told.blind, (row) => `${row.agent} ${row.reason}`, makeBlind, updateBlind);
  sync(at("doubt"), told.doubt.agents, (doubt) => doubt.agent, makeDoubt, updateDoubt);
  sync(at("deviating"), told.deviating, (deviation) => deviation.agent, makeDoubt, updateDeviating);
  sync(at("wrong"), wrongOnes(told.contradictions), (wrong) => wrong.name, makeWrong, updateWrong);
  put(at("doubt-model"), aboutModel(told.doubt.model));
  at("doubt-model").className = told.doubt.model.doubted === false ? "quiet" : "unknown";
  const rows = told.agents.flatMap((agent) =>
    agent.formulas.map((formula, index) => ({ agent, formula, first: index === 0, now })));
  sync(at("agents"), rows, (row) => `${row.agent.name} ${row.formula.name}`, makeRow, updateRow);
  sync(at("formulas"), told.formulas, (formula) => formula.name,
    () => element("li", "", element("strong"), " ", element("code")),
    (line, formula) => {
      put(line.children[0], formula.name);
      put(line.children[1], formula.text);
    });
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
