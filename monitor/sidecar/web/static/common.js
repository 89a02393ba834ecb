// Shared by the pages: requests to the monitor, the connection state, and parts of pages.
// Nothing is loaded from other servers. Elements are kept and only their contents change, so that focus, selection and
// a screen reader's position survive.
//
// A part is an element with one function, `render`, that renders all of it from what the API answered. It holds on to the
// elements it has made: none is looked up in the document, where another one could be found.

// Milliseconds between two requests: the largest delay of a value shown.
const EVERY = 1000;
// Milliseconds after which a request fails and the data shown are outdated.
const TIMEOUT = 10_000;
export const at = (id) => document.getElementById(id);
const known = { token: sessionStorage.getItem("cfmon-token"), heard: null, answers: 0, wrong: "", look: () => {} };

export async function ask(path) {
  const headers = known.token ? { Authorization: `Bearer ${known.token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  if (answer.status === 401) {
    at("token-wrong").textContent = known.token && at("token").hidden === false ? "Wrong token." : "";
    at("token").hidden = false;
    throw new Error("a token is required");
  }
  at("token").hidden = true;
  if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
  return answer;
}

export function named(kind, id, className = "") {
  const made = element(kind, className);
  made.id = id;
  return made;
}

export function element(kind, className, ...children) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function drawn(kind, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// The items by key, in order of their first.
export function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

export function part(node, render) {
  node.render = render;
  return node;
}

// ---- nothing moves under the pointer ----

// Milliseconds without movement after which the pointer only lies there.
const RESTING = 30_000;
const pointer = { x: 0, y: 0, moved: -Infinity };
let pointed = null;  // the element under the pointer, while the page is updated
addEventListener("pointermove", ({ clientX, clientY }) => Object.assign(pointer, { x: clientX, y: clientY, moved: performance.now() }));
document.documentElement.addEventListener("pointerleave", () => {
  pointer.moved = -Infinity;
});

// Update the page so that what is under the pointer stays there: its list keeps its order, and what is inserted or grows
// above it scrolls the page.
function steadily(update) {
  pointed = performance.now() - pointer.moved < RESTING ? document.elementFromPoint(pointer.x, pointer.y) : null;
  const [kept, top] = [pointed?.closest("[data-key]"), pointed?.closest("[data-key]")?.getBoundingClientRect().top];
  try {
    update();
  } finally {
    pointed = null;
  }
  if (kept?.isConnected) scrollBy(0, kept.getBoundingClientRect().top - top);
}

// Make the children of `list` parts that show `items`, in order; a part is made once and kept while its key exists. Under
// the pointer the order stays, new ones are last, and those that are gone stay and say so, until the pointer leaves.
export function sync(list, items, key, make) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const fresh = new Map(items.map((item) => [key(item), item]));
  const held = pointed !== null && list.contains(pointed);
  const order = held ? [...old.keys(), ...[...fresh.keys()].filter((name) => !old.has(name))] : [...fresh.keys()];
  let before = list.firstElementChild;
  order.forEach((name) => {
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = make(fresh.get(name));
      child.dataset.key = name;
    }
    child.classList.toggle("gone", !fresh.has(name));
    if (fresh.has(name)) child.render(fresh.get(name));
    if (child === before) before = before.nextElementSibling;
    else list.insertBefore(child, before);
  });
  for (const gone of old.values()) gone.remove();
}

// Fold a list beyond its first `most` children; `about`: words on those folded. Its class `fold-MOST` hides them.
export function makeFold(list, button, most, about = () => "") {
  const render = () => {
    const more = list.childElementCount - most;
    const folded = list.classList.contains("folded");
    button.hidden = more <= 0;
    button.setAttribute("aria-expanded", String(!folded));
    if (more > 0) put(button, folded ? `Show ${more} more${about(more)}` : `Show the first ${most} only`);
  };
  button.addEventListener("click", () => {
    list.classList.toggle("folded");
    render();
    look();
  });
  return { render };
}

// How many of the alarms of an agent's formula began in the last day, in words, since the first of them, so that one that
// comes and goes is seen, and what became of those that are over; `more`: perhaps not all are known.
export function repeatsOf(alarms, now, more) {
  const [day, hour] = [86_400, 3600].map((seconds) => alarms.map(({ began_unix: began }) => now - began).filter((gone) => gone < seconds));
  if (day.length < 2) return "";
  const first = Math.max(1, ...day);
  const unit = first < 120 ? 1 : first < 7200 ? 60 : 3600;
  const over = alarms.filter(({ began_unix: from, over_unix: to }) => from > now - 86_400 && to);
  const lengths = over.map(({ began_unix: from, over_unix: to }) => length(from, to)).sort((one, two) => one - two);
  const fates = [...grouped(over, ({ state }) => state)].map(([state, some]) => `${some.length} ${FATES[state] ?? state}`);
  const before = over.length ? ` Of those before, ${fates.join(", ")}; median length ${span(lengths[Math.floor(lengths.length / 2)])}.` : "";
  const lately = hour.length > 0 && first >= 7200 ? `, ${hour.length} of them in the last hour` : "";
  return `Recurring: ${more ? "at least " : ""}${day.length} alarms in the last ${span(unit * Math.ceil(first / unit))}${lately}.${before}`;
}

// What became of an alarm, by its state.
const FATES = { resolved: "resolved", ended: "ended with the episode" };

// Sentences, each a line of its own.
export function makeDetails() {
  const list = element("ul", "details");
  const makeLine = () => {
    const line = element("li");
    return part(line, (text) => put(line, text));
  };
  return part(list, (texts) => {
    list.hidden = texts.length === 0;
    sync(list, texts, (text) => text, makeLine);
  });
}

// A table in which each item has a row. `columns`: heading and class of each; `key` names an item; `make` makes its row,
// by default of cells with the texts that are shown in it.
export function makeTable(caption, columns, key, make = () => makeRow(columns.map(([, kind]) => kind))) {
  const heads = columns.map(([text, kind]) => {
    const head = element("th", kind, text);
    head.scope = "col";
    return head;
  });
  const body = element("tbody");
  const table = element("table", "profile", element("caption", "", caption), element("thead", "", element("tr", "", ...heads)), body);
  table.heads = heads;
  return part(table, (items) => {
    table.hidden = items.length === 0;
    sync(body, items, key, make);
  });
}

// A row whose item is the list of its cells' texts.
export function makeRow(kinds) {
  const cells = kinds.map((kind) => element("td", kind));
  return part(element("tr", "", ...cells), (texts) => cells.forEach((cell, n) => put(cell, texts[n])));
}

// The shape of a state, beside its word.
export function makeShape() {
  const shape = element("span", "shape");
  return part(shape, (state) => {
    if (shape.dataset.state !== state) shape.dataset.state = state;
  });
}

// Names and what is known of each: pairs [name, text]. A name without a text is left out.
export function makeFacts() {
  const makeFact = () => {
    const [name, text] = [element("dt"), element("dd")];
    return part(element("div", "", name, text), (fact) => {
      put(name, fact[0]);
      put(text, fact[1]);
    });
  };
  const list = element("dl", "facts");
  return part(list, (facts) => sync(list, facts.filter(([, text]) => text), ([name]) => name, makeFact));
}

// What only some want to read, folded.
export function makeMore(...parts) {
  return element("details", "more", element("summary", "", "Details"), ...parts);
}

// A text of which the first sentence stands out.
export function makeSentence(className) {
  const [lead, rest] = [element("span", "lead"), element("span")];
  return part(element("p", className, lead, rest), (text) => {
    const end = text.search(/[.;] (?=[A-Z])/) + 1;
    put(lead, end > 0 ? text.slice(0, end) : text);
    put(rest, end > 0 ? text.slice(end) : "");
  });
}

// The end of a summary that says in which causal models its numbers hold.
const EVERYWHERE = / (?:These numbers hold|Same) in every (stable )?(?:causal )?model\.$/;

// The summary of a firing alarm; in which causal models it holds is among the details, if that is all that its end says.
export const finding = ({ summary, state }) => (state === "firing" ? summary.replace(EVERYWHERE, "") : summary);

// What `finding` leaves out, as a fact.
export function causalModels({ summary, state }) {
  const models = state === "firing" && EVERYWHERE.exec(summary);
  return ["from now on", models ? `the same in every ${models[1] ?? ""}causal model` : ""];
}

// A text of which the first words, up to a colon, name the rest.
export function makeLabelled(className = "") {
  const [label, rest] = [element("b"), element("span")];
  return part(element("span", className, label, rest), (text) => {
    const end = text.indexOf(":") + 1;
    put(label, text.slice(0, end));
    put(rest, text.slice(end));
  });
}

// How the numbers were obtained, and whether the model fits the agents; `test`: the test of the model, if it is known here.
export function howSure({ method, blind }, test) {
  if (blind && blind !== "model_doubt") return "How sure: not at all now, as the formula is blind.";
  const how = method === "exact" ? "Computed exactly." : "Sampled.";
  if (blind || test?.doubted) return `How sure: not sure, as transitions CONTRADICT the model. ${how}`;
  const tested = !test ? "" : test.doubted === null ? ", which has not been tested yet" : `, which ${test.transitions} transitions of all agents do not contradict`;
  return `How sure: as sure as the model${tested}. ${how}`;
}

// ---- numbers and times as text ----

export function number(value) {
  return value === null || value === undefined ? "" : value.toFixed(4);
}

// The value under the nominal policy; for regret also under the alternative.
export function figures(formula) {
  const other = formula.alternative?.value ?? null;
  return other === null ? number(formula.value) : `${number(formula.value)} vs ${number(other)}`;
}

// Both values from now on, which the sentence compares; empty if the formula does not look back.
export function fromNow({ value, alternative, profile = [] }) {
  const now = alternative && profile.find(({ offset }) => offset === 0);
  const later = now ? figures({ value: now.nominal, alternative: { value: now.alternative } }) : "";
  return later === figures({ value, alternative }) ? "" : later;
}

// From when on a formula that looks back compares: from as many steps ago as it may.
export const lookBack = ({ profile = [] }) => `from ${stepsAgo(Math.max(0, ...profile.map(({ offset }) => offset)))}`;

// The values as facts: at the moment that the formula looks back to, if it does, and from now on.
export function values(formula) {
  const name = formula.alternative ? `nominal vs ${formula.alternative.name}` : "value";
  const [asked, later] = [figures(formula), fromNow(formula)];
  return later ? [[`from now: ${name}`, later], [`${lookBack(formula)}: ${name}`, asked]] : [[name, asked]];
}

// The states of a formula; those that need somebody come first.
export const STATES = ["firing", "pending", "blind", "unknown", "fine"];

// "1 step", "2 steps".
export const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

// The first names of a list, and how many more it has.
export const shortened = (names, most = 2) => `${names.slice(0, most).join(", ")}${names.length > most ? ` and ${names.length - most} more` : ""}`;

export const stepsAgo = (count) => (count === 0 ? "now" : `${many(count, "step")} ago`);

export function required(threshold) {
  return threshold === null ? "" : `${threshold.comparison} ${threshold.bound}`;
}

export const between = (bounds) => (bounds ? `${number(bounds[0])} to ${number(bounds[1])}` : "");

// What is known beside the state: why there is no verdict, or the verdict. While a formula is blind, its alarm is what it was.
export function verdictOf({ state, blind, alarm, outcome, alternative, profile }) {
  if (blind) return state === "blind" ? `before: ${alarm === "clear" ? "no alarm" : alarm}` : "blind";
  const back = Math.max(0, ...profile.map(({ offset }) => offset));
  if (outcome === "regret") return back ? `not met; ${alternative.name} ${stepsAgo(back)} would have met it` : `not met; ${alternative.name} meets it`;
  if (outcome === "unavoidable") return `not met, nor by ${alternative.name}`;
  return outcome ? `verdict: ${outcome}` : "between episodes";
}

// What the row of an alarm's formula says of the alarm, if there is one: its values over time, and how long its steps are.
export function rowOf(alarm, rows) {
  const row = rows.find(({ agent, formula }) => agent.name === alarm.agent && formula.name === alarm.formula.name);
  const curve = row && (row.formula.curve ?? row.formula.last_minutes);
  return { pace: row ? paceOf(row) : "", over_time: curve?.time.length ? { ...row, formula: { ...row.formula, curve } } : null };
}

function paceOf({ agent: { seconds_per_step: each }, formula: { horizon: steps } }) {
  return each && steps ? `Pace: one step in ${brief(each)}, so ${many(steps, "step")} in about ${brief(each * steps)}.` : "";
}

// Since when a formula is blind; nothing if that is not known.
export const blindSince = ({ blind, blind_since: since }) => (blind && isMoment(since) ? `blind since ${moment(since)}` : "");

// Local date, time and zone, each figure in its place at every hour; an agent's clock may send any number.
const TWO = "2-digit";
const WRITTEN = new Intl.DateTimeFormat("sv-SE", {
  year: "numeric", month: TWO, day: TWO, hour: TWO, minute: TWO, second: TWO, timeZoneName: "short",
});

export const isMoment = (seconds) => seconds > 0 && seconds < 8.64e12;

export function moment(seconds) {
  if (!isMoment(seconds)) return "an unknown time";
  return WRITTEN.format(new Date(seconds * 1000));
}

export function ago(seconds, now) {
  return `${span(now - seconds)} ago`;
}

// The time between two moments as they are shown, without fractions of a second.
export const length = (from, to) => Math.floor(to) - Math.floor(from);

export function span(seconds) {
  const gone = Math.max(0, Math.round(seconds));
  if (gone < 120) return `${gone} s`;
  return gone < 7200 ? `${Math.round(gone / 60)} min` : `${Math.round(gone / 3600)} h`;
}

// A time with two figures where seconds matter.
const brief = (seconds) => (seconds < 10 ? `${Number(seconds.toPrecision(2))} s` : span(seconds));

// An e-value: as a number while it is small, by its power of ten where only that matters; null: infinite.
export function strength(log10) {
  if (log10 === null) return "infinite";
  return log10 < 3 ? `${Number((10 ** log10).toPrecision(2))}` : `1e${log10.toFixed(1)}`;
}

// Result of the test of the model: strength of the evidence, and the transitions with the strongest evidence.
export function evidenceOf(test) {
  return `e-value ${strength(test.log10_e)} after ${test.transitions} transitions`;
}

export function departing(test) {
  return test.departing.map(({ state, action, successor, seen, of, expected }) =>
    `state ${state}, action ${action}, next state ${successor}: observed ${seen} times in ${of}, expected ${expected.toFixed(1)}`).join("; ");
}

// Deviation of an agent's actions from its nominal policy.
export function deviates({ share, steps }) {
  const percent = Math.round(100 * share);
  return `on ${percent} % of its last ${steps} steps it acted differently from its nominal policy, beyond chance`;
}

export const POLICY_ASSUMED = "Verdicts about its future assume that policy, so they do not describe this agent now.";

export function agentPage(name) {
  return `agent?name=${encodeURIComponent(name)}`;
}

// ---- connection ----

// Poll `path()` and pass each document to `show`. Call `judge(why)` after each answer and when the data shown become
// outdated; `why` is the reason why nothing is known now, empty if the data are current.
export function follow(path, show, judge) {
  const say = () => {
    const old = known.heard !== null && Date.now() - known.heard > TIMEOUT;
    const wrong = known.wrong || (old ? "no answer for more than 10 s" : "");
    if (known.heard === null && !wrong) return;
    document.body.dataset.live = wrong ? "no" : "yes";
    at("state").classList.toggle("wrong", Boolean(wrong));
    if (wrong) {
      const last = known.heard === null ? "" : ` Data shown are from ${moment(known.heard / 1000)} and may be outdated.`;
      put(at("state"), `No answer from the monitor: ${wrong}.${last}`);
      document.title = `(?) ${document.title.replace(/^\([^)]*\) /, "")}`;
    }
    judge(wrong && "the monitor does not answer");
  };
  known.look = async () => {
    try {
      const told = await (await ask(path())).json();
      steadily(() => show(told));
      known.heard = Date.now();
      document.body.dataset.answers = ++known.answers;  // shown so far
      known.wrong = "";
    } catch (error) {
      known.wrong = error.name === "TimeoutError" ? "it did not answer within 10 s" : error.message;
    }
    say();
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      say();
      known.look();
    }
  });
  setInterval(say, EVERY);
  (async () => {
    for (;;) {
      if (!document.hidden) await known.look();
      await new Promise((done) => setTimeout(done, EVERY));
    }
  })();
}

export function look() {
  known.look();
}

// The line below a list: "none" only if that is known, else why it is unknown. `some`: what to say if there are any.
export function tell(id, empty, nothing, why, some = "") {
  const line = at(id);
  const known = empty ? nothing : some;
  line.hidden = !why && !known;
  line.className = why ? "unknown" : "quiet";
  put(line, why ? `${empty ? "Unknown" : `${some && `${some}. `}There may be more`}: ${why}.` : known);
}

// ---- parts of every page ----

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  known.token = at("token-value").value;
  sessionStorage.setItem("cfmon-token", known.token);
  look();
});
// Plain links send no token, so data are fetched with it and saved. Pages contain no data.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a");
  if (!known.token || !link || link.origin !== location.origin || link.hash || link.target || link.className === "page") return;
  event.preventDefault();
  const answer = await ask(link.href);
  const save = element("a");
  save.href = URL.createObjectURL(await answer.blob());
  save.download = link.pathname.split("/").pop();
  save.click();
});
