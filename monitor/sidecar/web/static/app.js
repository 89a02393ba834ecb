// The status page: fetches one document a second and updates the page.
import {
  POLICY_ASSUMED, STATES, ago, agentPage, at, blindSince, departing, deviates, element, evidenceOf, figures, follow, fromNow, grouped, length, look, lookBack, makeFold, makeSentence, makeShape, many, moment, part, put, repeatsOf,
  required, rowOf, shortened, span, sync, tell, verdictOf,
} from "./common.js";
import { makeAlarm, makeInstructions, makeRunbook } from "./alarm.js";
import { widest } from "./bands.js";
import { WINDOW, axesOf, makeLane, makeTrace } from "./charts.js";

const seen = { firing: null, announced: [], told: null, rows: [] };

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

// ---- blind ----

// Names of agents that are shown on one card.
const NAMES = 5;

// A card for each reason to be blind, with the agents.
function makeBlind() {
  const [head, summary, how, runbook] = [element("p", "head word-blind"), makeSentence("summary"), makeInstructions(), makeRunbook()];
  const link = element("a", "page", "the agent's page");
  return part(element("li", "blind", head, summary, how, element("div", "actions", runbook, link)), ({ reason, agents, formulas, words, first, todo, since }) => {
    put(head, ["BLIND", reason, many(agents.length, "agent"), ...since].join(" · "));
    summary.render(`${shortened(agents, NAMES)}: ${words}. No reliable verdict now of ${formulas.join(", ")}.`);
    how.render({ instructions: first, state: "firing" });
    runbook.render({ runbook: todo, state: "unknown" });
    link.hidden = agents.length > 1;
    link.href = agentPage(agents[0]);
  });
}

// One entry for each reason why formulas are blind. Idle agents and a doubted model are shown in other parts of the page.
function blindOnes({ blind, agents: shown, now }) {
  const reasons = grouped(blind.filter(({ complete }) => !complete), ({ reason }) => reason);
  return [...reasons].map(([reason, groups]) => {
    const agents = groups.map(({ agent }) => agent);
    const known = agents.length === 1 ? shown.find(({ name }) => name === agents[0])?.formulas.filter((formula) => formula.blind === reason && blindSince(formula)) : [];
    const before = known?.map((formula) => `${blindSince(formula)}, for ${span(length(formula.blind_since, now))}${formula.state === "blind" ? `; ${verdictOf(formula)}` : ""}`) ?? [];
    const since = new Set(before).size === 1 ? before.slice(0, 1) : [];
    const detail = groups.length === 1 && groups[0].detail ? ` (${groups[0].detail})` : "";
    const formulas = [...new Set(groups.flatMap((group) => group.formulas))];
    return { reason, agents, formulas, words: `${groups[0].words}${detail}`, first: groups[0].first, todo: groups[0].runbook, since };
  });
}

// ---- whether the model fits ----

function aboutModel(test) {
  if (test.doubted === null) return "The model as a whole has not been tested yet.";
  if (test.doubted) return `IN DOUBT for all agents: their transitions contradict the model (${evidenceOf(test)}). Verdicts may be wrong. ${departing(test)}`;
  return `All agents' transitions do not contradict the model so far (${evidenceOf(test)}).`;
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

// Rows, alarms and agents that are shown before the rest is folded, with a count; the classes `fold-N` say the same.
const ROWS = 12;
const CARDS = 3;
const LANES = 8;
const COLUMNS = ["agent", "formula", "alarm", "verdict", "value", "required", "looking back", "last values", "step", "last message", "why", "says"];

function makeRow() {
  const cells = {};
  const row = element("tr");
  // The style lays rows and cells out anew, which would take their meaning as a table away.
  row.setAttribute("role", "row");
  for (const name of COLUMNS) {
    cells[name] = element("td", ["value", "step"].includes(name) ? "number" : "");
    cells[name].dataset.label = name;
    cells[name].setAttribute("role", "cell");
    row.append(cells[name]);
  }
  const [page, shape, word, value] = [element("a", "page"), makeShape(), element("span"), element("span")];
  const [counted, band] = [element("small", "counted"), element("small", "band")];
  const [trace, why, saying, runbook] = [makeTrace(), element("a", "page", "Why?"), element("span"), makeRunbook()];
  cells.agent.append(page);
  cells.alarm.append(shape, word);
  cells.value.append(value, counted, band);
  cells["last values"].append(trace);
  cells.why.append(why);
  cells.says.append(saying, " ", runbook);
  return part(row, ({ agent, formula, alarms, says, todo, axes, now }) => {
    row.dataset.state = formula.state;
    put(page, agent.name);
    page.href = agentPage(agent.name);
    put(cells.formula, formula.name);
    shape.render(formula.state);
    put(word, formula.state);
    cells.alarm.className = `word-${formula.state}`;
    put(cells.verdict, verdictOf(formula));
    const [uncertain, later] = [widest(formula), fromNow(formula)];
    // Advice is from now on, so that comes first; but a band belongs to the value that the formula asks for.
    const ahead = later && !uncertain;
    put(value, ahead ? later : figures(formula));
    put(counted, later && ` ${ahead ? "from now" : lookBack(formula)}`);
    put(band, uncertain);
    put(cells.required, required(formula.threshold));
    put(cells["looking back"], ahead ? `${lookBack(formula)} ${figures(formula)}` : "");
    trace.hidden = formula.last_minutes === null;
    if (!trace.hidden) trace.render({ formula, alarms, axes });
    put(cells.step, formula.seq === null ? "" : String(formula.seq));
    put(cells["last message"], ago(agent.last_message, now));
    why.href = `${agentPage(agent.name)}#formula-${formula.name}`;
    why.setAttribute("aria-label", `Why? Explain ${formula.name} of ${agent.name}`);
    put(saying, says);
    runbook.render({ runbook: todo, state: "unknown" });
  });
}

// A row for each formula of each agent, with its alarms of the day, and why it is blind or what makes its value doubtful;
// why it fires is said above.
function rowsOf(told) {
  const alarms = grouped(told.day, (alarm) => `${alarm.agent} ${alarm.formula}`);
  const about = new Map(told.blind.map((group) => [group.reason, group]));
  const traced = told.agents.flatMap(({ formulas }) => formulas).filter(({ last_minutes: curve }) => curve !== null);
  const axes = axesOf(traced.map((formula) => ({ ...formula, curve: formula.last_minutes })), told.now, WINDOW);
  const axesFor = new Map(traced.map((formula, n) => [formula, axes[n]]));
  return told.agents.flatMap((agent) => agent.formulas.map((formula) => {
    const name = `${agent.name} ${formula.name}`;
    const says = [blindSince(formula), formula.blind && (formula.detail || about.get(formula.blind)?.words), agent.doubt.doubted && "IN DOUBT: its transitions contradict the model",
      agent.deviation.notable && "NOT ITS POLICY: its actions differ from it"];
    return { name, agent, formula, alarms: alarms.get(name) ?? [], says: says.filter(Boolean).join("; "), todo: formula.blind && about.get(formula.blind)?.runbook, axes: axesFor.get(formula), now: told.now };
  }));
}

// Of the rows that are folded, how many are in which state.
function statesBeyond(rows) {
  const beyond = grouped(rows.slice(ROWS), ({ formula }) => formula.state);
  return `: ${STATES.filter((state) => beyond.has(state)).map((state) => `${beyond.get(state).length} ${state}`).join(", ")}`;
}

function makeAgentLane() {
  const [page, count, lane] = [element("a", "page"), element("span", "faint"), makeLane()];
  return part(element("li", "", element("span", "who", page, " ", count), lane), ({ agent, alarms, now }) => {
    put(page, agent);
    page.href = agentPage(agent);
    put(count, alarms.length === 1 ? "" : `${alarms.length} alarms`);
    lane.render({ alarms, now });
  });
}

function makeWatched() {
  const [name, text] = [element("strong"), element("code")];
  return part(element("li", "", name, " ", text), (formula) => {
    put(name, formula.name);
    put(text, formula.text);
  });
}

// ---- the state of everything ----

// Seconds of lag beyond which an update of this page is late for it.
const SLOW = 1;

// A line of the strip; `why`: why it is unknown.
function say(id, text, why = "") {
  const line = at(id);
  line.className = why ? "unknown" : "";
  put(line, why ? `Unknown: ${why}.` : text);
}

// Of a state whose reason to be unknown is said beside it already.
function sayBriefly(state, some, none, why) {
  const line = at(`${state}-none`);
  line.className = why ? "unknown" : "";
  const count = seen.told.states[state];
  put(line, why ? (count ? `${some}. There may be more.` : "None known.") : count ? some : none);
}

// Names of agents with formulas in a state, and the number of further such formulas.
function agentsIn(wanted, { agents, states, count }) {
  const named = agents.flatMap(({ name, formulas }) => formulas.filter(({ state }) => state === wanted).map(() => name));
  const shown = [...new Set(named)].slice(0, 2);
  const more = (wanted === "firing" ? count.firing : states[wanted]) - named.filter((name) => shown.includes(name)).length;
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join(", ");
}

// Why there may be more alarms: agents are blind for a reason that may hide one. Only some of many are listed.
function unanswered({ blind, count }) {
  const names = [...new Set(blind.filter(({ complete }) => !complete).map(({ agent }) => agent))];
  const unlisted = count.blind > blind.length;
  if (names.length === 0) return unlisted ? "some formulas are blind" : "";
  return `${unlisted ? `${names.slice(0, 2).join(", ")} and others` : shortened(names)} ${names.length > 1 || unlisted ? "are" : "is"} blind`;
}

// Why formulas have no verdict, with the names of their agents as far as these are shown.
function aboutUnknown(told) {
  const shown = told.agents.flatMap(({ formulas }) => formulas.filter(({ state }) => state === "unknown"));
  if (shown.length === 0) return "no verdict, or undecided";
  const undecided = shown.filter(({ outcome }) => outcome).length;
  const all = shown.length === told.states.unknown;
  const why = all && undecided === 0 ? "between episodes, or no verdict yet" : all && undecided === shown.length ? "undecided" : "no verdict, or undecided";
  return `${agentsIn("unknown", told)}: ${why}`;
}

// About one thing: whether it needs somebody (`yes`), and what there is to say.
function sayOf(name, id, wrong, text, why = "") {
  at(`${name}-shape`).dataset.state = why ? "unknown" : wrong ? "pending" : "fine";
  at(`strip-${name}`).dataset.on = why ? "unknown" : wrong ? "yes" : "no";
  say(id, text, why);
}

function describeBroker({ connected, broker, unsent }) {
  const waiting = unsent ? `; ${many(unsent, "message")} not sent yet` : "";
  return connected ? `connected to ${broker}${waiting}` : `NOT connected to ${broker}${waiting}`;
}

// The things below that are wrong with the model or its agents, counted.
function describeDoubts({ doubt, contradictions, deviating }) {
  const counts = [[doubt.agents.length, "agent", "in doubt"], [contradictions.rows_rejected, "row", "of the model wrong"],
    [contradictions.agents_rejected, "agent", "contradicting it"], [deviating.length, "agent", "not following its policy"]];
  return counts.filter(([count]) => count > 0).map(([count, what, how]) => `${many(count, what)} ${how}`).join(", ");
}

function describeSystem(told, lost) {
  const { status, doubt, lag } = told;
  const waits = status.unsent > 0;
  sayOf("broker", "broker", !status.connected || waits, describeBroker(status), lost);
  const others = describeDoubts(told);
  const untested = doubt.model.doubted === null && !others;
  const about = `${aboutModel(doubt.model)}${others && ` Below: ${others}.`}`;
  sayOf("model", "doubt-model", doubt.model.doubted === true || Boolean(others), about, lost || (untested && "the model has not been tested against any step yet"));
  const silent = told.blind.filter(({ reason }) => reason === "stale").map(({ agent }) => agent);
  const missing = silent.length ? `; none from ${shortened(silent)}` : "";
  const none = silent.length ? `no step arrives from ${shortened(silent)}` : "no step with a time yet";
  const longest = lag && `${lag.seconds.toFixed(2)} s at most, of the messages that arrive${lag.seconds > SLOW ? ` (${lag.agent})` : ""}${missing}`;
  sayOf("lag", "lag", lag !== null && lag.seconds > SLOW, longest, lost || told.problem || (lag === null && none));
}

// ---- the whole page ----

const foldOf = (name, most, about) => makeFold(at(name), at(`${name}-fold`), most, about);
const unlisted = (count, what) => (count > 0 ? `; ${count} ${what} in the list of all alarms` : "");
const FOLDS = [
  foldOf("firing", CARDS, () => unlisted(seen.told.count.firing - seen.told.firing.length, "more are")),
  foldOf("blind", CARDS, () => " reasons"),
  foldOf("agents", ROWS, () => statesBeyond(seen.rows)),
  foldOf("lanes", LANES, () => " agents"),
];

function show(told) {
  const { status } = told;
  seen.told = told;
  put(at("state"), told.problem || `monitoring ${many(told.count.agents, "agent")}`);
  put(at("now"), moment(told.now));
  const model = `${status.model.name} ${status.model.sha256.slice(0, 12)}`;
  const shard = status.shard ? ` · only the agents of shard ${status.shard}` : "";
  put(at("about"), `${status.client_id}${shard} at ${status.broker} · model ${model} · version ${status.version}`);
  document.title = `${told.count.firing ? `(${told.count.firing}) ` : told.problem ? "(?) " : ""}Counterfactual monitor`;

  announce(told.firing);
  for (const state of STATES) {
    const count = state === "firing" ? told.count.firing : told.states[state];
    put(at(`${state}-count`), String(count));
    at(`strip-${state}`).dataset.on = count > 0 ? "yes" : "no";
  }
  const before = grouped(told.day, (alarm) => `${alarm.agent} ${alarm.formula}`);
  const repeats = ({ agent, formula }) => repeatsOf(before.get(`${agent} ${formula.name}`) ?? [], told.now, told.count.day > told.day.length);
  seen.rows = rowsOf(told);
  const about = { now: told.now, modelTest: told.doubt.model };
  const firing = told.firing.map((alarm) => ({ ...alarm, ...about, repeats: repeats(alarm), ...rowOf(alarm, seen.rows) }));
  sync(at("firing"), firing, (alarm) => alarm.id, makeAlarm);
  sync(at("blind"), blindOnes(told), (group) => group.reason, makeBlind);
  at("blind-section").hidden = at("blind").childElementCount === 0;
  sync(at("recent"), told.recent, (alarm) => `${alarm.id} ${alarm.revision}`, makeAlarm);
  sync(at("doubt"), told.doubt.agents, (doubt) => doubt.agent, makeDoubt);
  sync(at("deviating"), told.deviating, (deviation) => deviation.agent, makeDeviating);
  sync(at("wrong"), wrongOnes(told.contradictions), (wrong) => wrong.name, () => makeCard((wrong) => wrong));
  sync(at("agents"), seen.rows, (row) => row.name, makeRow);
  const others = new Set(seen.rows.flatMap(({ formula: { alternative } }) => (alternative ? [alternative.name] : [])));
  put(at("alternative"), others.size === 1 ? [...others][0] : "alternative");
  sync(at("formulas"), told.formulas, (formula) => formula.name, makeWatched);
  const lanes = [...grouped(told.day, (alarm) => alarm.agent)].map(([agent, alarms]) => ({ agent, alarms, now: told.now }));
  sync(at("lanes"), lanes, (lane) => lane.agent, makeAgentLane);
  at("firing-section").hidden = at("firing").childElementCount === 0;
  at("doubt-section").hidden = !["doubt", "wrong", "deviating"].some((name) => at(name).childElementCount > 0);
  at("recent-more").hidden = at("recent").childElementCount === 0;
  at("rows").hidden = at("legend").hidden = told.agents.length === 0;
  at("day").hidden = at("lanes").childElementCount === 0;
  for (const fold of FOLDS) fold.render();
  const more = told.count.found - told.agents.length;
  put(at("agents-more"), more > 0 ? `${more} more agents, which need nobody sooner: find them by name.` : "");
  const older = told.count.day - told.day.length;
  put(at("day-more"), older > 0 ? `${older} older alarms of the last day are not drawn: they are in the list of all alarms.` : "");
}

// Say "none" only if that is known.
function judge(lost) {
  const told = seen.told;
  if (told === null) {
    for (const name of ["firing", "agents", "day"]) tell(`${name}-none`, true, "", lost);
    for (const name of ["pending-none", "blind-none", "unknown-none", "fine-none"]) say(name, "", lost);
    for (const [name, id] of [["broker", "broker"], ["model", "doubt-model"], ["lag", "lag"]]) sayOf(name, id, false, "", lost);
    return;
  }
  const { agents } = told.count;
  // Idle agents need no evaluation; a model in doubt still gives verdicts, and is reported below.
  const unseen = lost || told.problem || (agents ? "" : "no agent has sent a step yet, so nothing is monitored");
  const incomplete = unseen || unanswered(told);
  tell("firing-none", !told.firing.length, "No alarm is firing.", incomplete, agentsIn("firing", told));
  sayBriefly("blind", agentsIn("blind", told), told.count.blind ? "Only firing ones are." : "No formula is blind.", unseen);
  sayBriefly("pending", agentsIn("pending", told), "No alarm is pending.", incomplete);
  sayBriefly("unknown", aboutUnknown(told), "none", unseen);
  const fine = told.agents.some(({ formulas }) => formulas.some(({ state }) => state === "fine"));
  sayBriefly("fine", fine ? agentsIn("fine", told) : "a verdict, and no alarm", "none", unseen);
  for (const state of STATES) if (unseen && at(`${state}-count`).textContent === "0") put(at(`${state}-count`), "?");
  describeSystem(told, lost);
  tell("agents-none", !told.agents.length, agents ? "No agent matches." : "No agent yet: waiting for steps on the configured topic.", lost);
  tell("day-none", !told.day.length, "No alarm in the last day.", lost || told.problem);
  at("state").classList.toggle("wrong", Boolean(lost || told.problem));
}

at("search").addEventListener("input", look);
follow(() => {
  const drawn = at("agents").classList.contains("folded") ? ROWS : "all";
  return `api/overview?drawn=${drawn}&search=${encodeURIComponent(at("search").value)}`;
}, show, judge);
