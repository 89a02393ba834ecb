// Alarms as cards, and why one fired: its numbers at once, the picture once it is drawn.
import {
  STATES, agentPage, ask, between, causalModels, element, finding, fromNow, howSure, isMoment, length, lookBack, makeDetails, makeFacts, makeLabelled, makeMore, makeSentence, makeShape, makeTable, moment, named, number, part, put, required, span, stepsAgo,
  values,
} from "./common.js";
import { makeBands } from "./bands.js";
import { WINDOW, axesOf, makeChart } from "./charts.js";

// The id of the alarm that is explained; null while none is.
let explained = null;
// How often an explanation was opened or closed: a picture that is asked for belongs to one opening.
let turns = 0;

export function makeAlarm() {
  let alarm = null;
  const [mark, shape, title] = [element("span", "mark"), makeShape(), element("span")];
  const [head, summary, blindness] = [element("p", "head", mark, shape, " ", title), makeSentence("summary"), element("p", "blindness word-blind")];
  const why = element("button", "", "Why?");
  why.type = "button";
  why.addEventListener("click", () => explain(alarm));
  const page = element("a", "page", "the agent's page");
  const proof = element("a", "proof", "evidence");
  const bundle = element("a", "bundle", "evidence with model and policies (zip)");
  const [how, sure, runbook] = [makeInstructions(), makeSure(), makeRunbook()];
  mark.setAttribute("aria-hidden", "true");
  const card = element("li", "", head, summary, blindness, how, sure, element("div", "actions", runbook, why, page, proof, bundle));
  return part(card, (told) => {
    alarm = told;
    const firing = alarm.state === "firing";
    card.classList.toggle("firing", firing);
    card.classList.toggle("critical", firing && alarm.severity === "critical");
    put(mark, firing ? (alarm.severity === "critical" ? "!!" : "!") : "");
    shape.hidden = firing;
    shape.render(SHAPES[alarm.state]);
    put(title, [wordOf(alarm), alarm.severity, alarm.formula.name, alarm.agent, lasted(alarm)].join(" · "));
    head.className = `head word-${alarm.state}`;
    summary.render(alarm.state === "unknown" ? `When it fired: ${alarm.summary}` : finding(alarm));
    put(blindness, firing && alarm.blind ? `blind: ${alarm.blind}` : "");
    proof.hidden = bundle.hidden = !alarm.evidence;
    why.setAttribute("aria-label", `Why ${firing ? "does" : "did"} ${alarm.formula.name} fire for ${alarm.agent}?`);
    page.href = agentPage(alarm.agent);
    page.hidden = document.body.dataset.page === "agent";
    if (alarm.evidence) {
      proof.href = `evidence/${alarm.evidence.id}`;
      bundle.href = `evidence/${alarm.evidence.id}.zip`;
    }
    how.render(alarm);
    sure.render(alarm);
    runbook.render(alarm);
    if (explained === alarm.id) explanation.render(alarm);
  });
}

// What the configuration says of who hands over, and how.
export function makeInstructions() {
  const text = element("span");
  const line = element("p", "instructions", element("b", "", "How: "), text);
  return part(line, ({ instructions, state }) => {
    line.hidden = !instructions || isOver(state);
    put(text, instructions ?? "");
  });
}

// How sure a firing alarm is, how long its steps are, and how often its formula fired, as far as this is known here.
export function makeSure() {
  const [sure, steps, repeats] = [makeLabelled(), makeLabelled("pace"), makeLabelled()];
  const line = element("p", "sure", steps, element("br"), sure, element("br"), repeats);
  return part(line, (alarm) => {
    const { state, modelTest, pace = "", repeats: often = "" } = alarm;
    line.hidden = state !== "firing";
    sure.render(line.hidden ? "" : howSure(alarm, modelTest));
    steps.render(line.hidden ? "" : pace);
    repeats.render(line.hidden ? "" : often);
  });
}

// The link to the runbook; nothing is to be done for an alarm that is known to be over.
export function makeRunbook() {
  const link = element("a", "runbook", "Runbook");
  link.target = "_blank";
  link.rel = "noreferrer";
  return part(link, ({ runbook, state }) => {
    link.hidden = !runbook || isOver(state);
    if (runbook) link.href = runbook;
  });
}

// The shape of an alarm's state: one that is over is fine only if the goal is met again.
const SHAPES = { firing: "firing", resolved: "fine", ended: "unknown", removed: "unknown", unknown: "unknown" };

const isOver = (state) => state !== "firing" && state !== "unknown";

// An alarm that ended with its episode was not resolved: the goal may have been missed.
const wordOf = ({ state }) => (state === "ended" ? "ENDED with the episode" : state.toUpperCase());

function lasted(alarm) {
  if (alarm.state === "firing") return `since ${moment(alarm.since_unix)}${alarm.now === undefined ? "" : `, for ${span(length(alarm.since_unix, alarm.now))}`}`;
  if (alarm.state === "unknown") return `from ${moment(alarm.began_unix)}; its end is unknown: the monitor was down`;
  return `from ${moment(alarm.began_unix)} to ${moment(alarm.over_unix)}, for ${span(length(alarm.began_unix, alarm.over_unix))}`;
}

// How the value went: name and numbers. An alarm of an earlier version does not say the worst.
export function course(alarm) {
  const { state, blind, threshold, fired, worst, value } = alarm;
  const end = state !== "firing" ? "at its end" : blind ? "last known" : "now";
  return [`${fromNow(alarm) ? `${lookBack(alarm)}: ` : ""}when it fired → worst → ${end}`, threshold === null ? "" : [fired.value, worst, value].map((each) => number(each) || "unknown").join(" → ")];
}

// ---- why ----

// The dialog that explains an alarm: its newest numbers, and the picture of the moment at which it fired.
const explanation = makeExplanation();
document.body.append(explanation);

function explain(alarm) {
  explained = alarm.id;
  explanation.render(alarm);
  explanation.draw(alarm);
  explanation.showModal();
}

function makeExplanation() {
  const [shape, word, summary, details] = [makeShape(), element("span"), makeSentence("summary"), makeDetails()];
  const title = named("h2", "why-title");
  title.append(shape, " ", word);
  summary.id = "why-summary";
  const close = named("button", "why-close");
  close.type = "button";
  put(close, "Close");
  const [facts, over, later] = [makeFacts(), makeOver(), makeLater()];
  const [numbers, profile, bands] = [makeNumbers(), makeProfile(), makeBands()];
  const [times, how, runbook, sure, since] = [element("p", "quiet"), makeInstructions(), makeRunbook(), makeSure(), makeChart()];
  const [when, wait] = [named("h3", "why-moment"), named("p", "why-wait")];
  wait.setAttribute("role", "status");
  const picture = named("div", "why-picture");
  const frame = named("div", "why-frame", "scroll");
  frame.tabIndex = 0;  // on a phone it is wider than the screen, and the keyboard has to reach it
  const shadow = picture.attachShadow({ mode: "open" });  // its style and its names are its own
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "picture of the alarm");
  frame.append(picture);
  const links = named("p", "why-links");
  const dialog = named("dialog", "why");
  dialog.setAttribute("aria-labelledby", "why-title");
  dialog.append(element("div", "bar", title, close), over, times, summary, how, sure, element("p", "", runbook), since, wait, when, later, frame, links, makeMore(facts, numbers, details, profile, bands));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    explained = null;
    turns += 1;
  });

  dialog.draw = async (alarm) => {
    const turn = ++turns;
    const wanted = () => turn === turns;
    frame.hidden = true;
    links.replaceChildren();
    put(when, `When it fired (not now): step ${alarm.fired.seq}, ${moment(alarm.fired.time_unix)}`);
    put(wait, alarm.evidence ? "The picture is being drawn from the evidence, which takes a while …" : "There is no evidence to draw.");
    if (!alarm.evidence) return;
    const bundle = element("a", "", "evidence with model and policies");
    bundle.href = `evidence/${alarm.evidence.id}.zip`;
    links.append(bundle, ` verify it: cfmon verify ${alarm.evidence.id}.zip`);
    const { drawing, problem } = await drawingOf(alarm.evidence.id, wanted);
    if (!wanted()) return;  // closed, or of another alarm, by now
    put(wait, problem && `The picture cannot be drawn: ${problem}`);
    if (problem) return;
    shadow.adoptedStyleSheets = [drawing.sheet];
    shadow.replaceChildren(drawing.svg);
    frame.hidden = false;
  };
  return part(dialog, (alarm) => {
    shape.render(SHAPES[alarm.state]);
    title.className = `word-${alarm.state}`;
    put(word, [wordOf(alarm), ...(alarm.state === "firing" && alarm.blind ? ["BLIND"] : []), alarm.severity, alarm.formula.name, alarm.agent].join(" · "));
    summary.render(finding(alarm));
    details.render(alarm.details ?? []);  // an alarm of an earlier version has none
    put(times, lasted(alarm));
    sure.render(alarm);
    how.render(alarm);
    over.render(alarm);
    later.render(alarm);
    dialog.classList.toggle("firing", alarm.state === "firing");
    runbook.render(alarm);
    const known = values(alarm).map(([name, text]) => [alarm.state === "firing" && alarm.blind ? `last known, ${name}` : name, text]);
    facts.render([...known, ["required", required(alarm.threshold)], ["step", String(alarm.seq)], course(alarm), causalModels(alarm)]);
    numbers.render(alarm);
    profile.render(alarm.profile);
    bands.render(alarm);
    since.hidden = !alarm.over_time;
    if (alarm.over_time) since.render(aroundIt(alarm));
  });
}

// Seconds that are shown of an alarm at least.
const SHORTEST = 60;

// The values of a firing alarm's formula, for twice as long as it has fired, as far as they are known here.
function aroundIt({ over_time: row, since_unix: since, now }) {
  const wanted = isMoment(since) ? 2 * (now - since) : WINDOW;
  const seconds = Math.max(SHORTEST, Math.min(wanted, now - row.formula.curve.time[0]));
  return { ...row, axes: axesOf([row.formula], now, seconds)[0] };
}

// What the picture below does not show, and that causal models may disagree in it while they agree on the advice.
function makeLater() {
  const [page, above, enough, models] = [element("a", "page", "the agent's page"), element("span", "", "in the chart above and "), element("span", "", " “Since” is the first bad verdict; at this step there were enough to fire."), element("span", "", " A shaded band in it is about the past; the advice above is from now on, and the same in every causal model.")];
  const line = element("p", "quiet", "The picture ends at this step; what came later is ", above, "on ", page, ".", enough, models);
  return part(line, ({ agent, state, blind, evidence, bounds, profile, fired, since_unix: since, over_time: chart }) => {
    line.hidden = !evidence;
    above.hidden = !chart;
    enough.hidden = state !== "firing" || since === fired.time_unix;
    page.href = agentPage(agent);
    const agreed = bounds !== null && bounds[0] === bounds[1] && profile.some(({ offset }) => offset === 0);
    models.hidden = !agreed || state !== "firing" || Boolean(blind);
  });
}

// Of an alarm that is over, that there is nothing to do for it, and the state of its agent and when it was asked, if the
// monitor knows it.
function makeOver() {
  const [page, word, when] = [element("a", "page"), element("span"), element("span", "quiet")];
  const now = element("span", "", " Now ", page, " is ", word, " ", when);
  const line = element("p", "", element("b", "", "This alarm is over: nothing to do for it."), now);
  line.id = "why-over";
  let shown = null;
  const say = (agent, state, asked) => {
    now.hidden = !state;
    put(page, agent);
    page.href = agentPage(agent);
    put(word, state);
    put(when, asked ? `(${moment(asked)})` : "");
    word.className = `word-${state}`;
  };
  return part(line, async ({ agent, state, id }) => {
    line.hidden = !isOver(state);
    if (shown !== id) say(agent, "");
    shown = id;
    if (line.hidden) return;
    let [states, asked] = [[], 0];
    try {
      const told = await (await ask(`api/agents/${encodeURIComponent(agent)}/history`)).json();
      [states, asked] = [told.formulas.map((formula) => formula.state), told.now];
    } catch {
      // the monitor does not answer: the agent's state is unknown, and is not said
    }
    if (shown === id) say(agent, STATES.find((each) => states.includes(each)) ?? "", asked);
  });
}

// What was known when the alarm fired, and what is known by its newest verdict. Bounds are of the newest; those of the moment
// at which it fired are in the picture.
function makeNumbers() {
  const columns = [["", ""], ["when it fired", "number"], ["newest verdict", "number"]];
  const table = makeTable("The numbers of this alarm", columns, ([name]) => name);
  return part(element("div", "scroll", table), (alarm) => {
    const { fired, alternative, threshold } = alarm;
    const own = alternative ? "nominal" : "value";
    const then = (shown) => shown && (alarm.evidence ? "see the picture" : "not kept");
    const bounds = between(alarm.bounds);
    const rows = [
      ["step", String(fired.seq), String(alarm.seq)],
      ["time", moment(fired.time_unix), moment(alarm.time_unix)],
      ["outcome", fired.outcome ?? "", alarm.outcome ?? ""],
      [own, number(fired.value), number(alarm.value)],
      [`${own}, bounds`, then(bounds), bounds],
      [alternative?.name ?? "", number(fired.alternative?.value), number(alternative?.value)],
      [`${alternative?.name}, bounds`, between(fired.alternative?.bounds), between(alternative?.bounds)],
      ["required", required(threshold), required(threshold)],
      ["obtained", then(alarm.method), alarm.method],
    ];
    table.render(rows.filter(([, then, now]) => then || now));
  });
}

// Both values for a takeover at each of these steps.
export function makeProfile() {
  const columns = [["takeover", "number"], ["nominal", "number"], ["alternative", "number"]];
  const table = makeTable("Values had the alternative taken over at each of these steps", columns, ([when]) => when);
  return part(element("div", "scroll", table), (profile) =>
    table.render(profile.map(({ offset, nominal, alternative }) => [stepsAgo(offset), number(nominal), number(alternative)])));
}

// The picture as part of the page, so that its steps can be pointed at and reached by the keyboard. Its style becomes a
// style sheet first: as an element it would violate our content security policy.
function parsed(text) {
  const [, style] = text.match(/<style>([^]*?)<\/style>/) ?? ["", ""];
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`svg { width: 100%; height: auto; display: block; } ${style}`);
  const { documentElement: svg } = new DOMParser().parseFromString(text.replace(/<style>[^]*?<\/style>/, ""), "image/svg+xml");
  // A browser reports an error as an element, at the root or first in it.
  if (svg.localName !== "svg" || svg.firstElementChild?.localName === "parsererror") throw new Error("it is not well-formed XML");
  return { sheet, svg: document.importNode(svg, true) };
}

// The first request draws the picture, which takes a moment. Nothing is asked any more once it is not `wanted`.
async function drawingOf(evidence, wanted) {
  try {
    while (wanted()) {
      const answer = await ask(`picture/${evidence}.svg`);
      if (answer.status !== 202) return { drawing: parsed(await answer.text()), problem: "" };
      await new Promise((done) => setTimeout(done, 300));
    }
    return { drawing: null, problem: "" };
  } catch (error) {
    return { drawing: null, problem: error.message };
  }
}
