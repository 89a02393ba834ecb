// Shared by the pages: requests to the monitor, the connection state, alarms as cards, and the picture of an alarm.
// Nothing is loaded from other servers. Elements are kept and only their contents change, so that focus, selection and
// a screen reader's position survive.

// Milliseconds between two requests: the largest delay of a value shown.
const EVERY = 1000;
// Milliseconds after which a request fails and the data shown are outdated.
const TIMEOUT = 10_000;
export const at = (id) => document.getElementById(id);
const known = { token: sessionStorage.getItem("cfmon-token"), explained: null, heard: null, wrong: "", look: () => {} };

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

export function element(kind, className, ...children) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Make the children of `list` match `items`, in order; a child is created once and updated while its key exists.
export function sync(list, items, key, make, update) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  let before = list.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === before) before = before.nextElementSibling;
    else list.insertBefore(child, before);
  }
  for (const gone of old.values()) gone.remove();
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

export function required(threshold) {
  return threshold === null ? "" : `${threshold.comparison} ${threshold.bound}`;
}

// The state of an alarm. While its formula is blind, an alarm that does not fire is unknown.
export function alarmWord(formula) {
  return formula.blind && formula.alarm !== "firing" ? `unknown, was ${formula.alarm}` : formula.alarm;
}

// Local date, time and zone; an agent's clock may send any number.
export function moment(seconds) {
  if (!(seconds > 0 && seconds < 8.64e12)) return "at an unknown time";
  return new Date(seconds * 1000).toLocaleString("sv-SE", { timeZoneName: "short" });
}

export function ago(seconds, now) {
  const gone = Math.max(0, Math.round(now - seconds));
  if (gone < 120) return `${gone} s ago`;
  return gone < 7200 ? `${Math.round(gone / 60)} min ago` : `${Math.round(gone / 3600)} h ago`;
}

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

// Axis range: all values and the threshold, at least 0.05, so that small noise does not look large.
export function rangeOf(values, threshold) {
  const seen = values.filter((value) => value !== null);
  if (threshold !== null) seen.push(threshold);
  if (!seen.length) return [0, 1];
  let low = seen.reduce((one, two) => Math.min(one, two));
  let high = seen.reduce((one, two) => Math.max(one, two));
  const margin = Math.max(0.1 * (high - low), (0.05 - (high - low)) / 2);
  return [low - margin, high + margin];
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
      show(told);
      known.heard = Date.now();
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

// The line below a list: "none" only if that is known, else why it is unknown.
export function tell(id, empty, nothing, why) {
  const line = at(id);
  line.hidden = !why && !empty;
  line.className = why ? "unknown" : "quiet";
  put(line, why ? `${empty ? "Unknown" : "There may be more"}: ${why}.` : nothing);
}

// ---- alarms ----

export function makeAlarm() {
  const card = element("li", "fresh");
  const why = element("button", "", "Why?");
  why.type = "button";
  why.addEventListener("click", () => explain(card.alarm));
  const page = element("a", "page", "the agent's page");
  const proof = element("a", "proof", "evidence");
  const bundle = element("a", "bundle", "with model and policies (zip)");
  const runbook = element("a", "runbook", "what to do");
  runbook.target = "_blank";
  runbook.rel = "noreferrer";
  const mark = element("span", "mark");
  mark.setAttribute("aria-hidden", "true");
  card.append(element("p", "head", mark, element("span")), element("p", "summary"), element("p", "blindness word-blind"));
  card.append(element("div", "actions", why, page, proof, bundle, runbook));
  return card;
}

function lasted(alarm) {
  if (alarm.state === "firing") return `since ${moment(alarm.since_unix)}`;
  if (alarm.state === "unknown") return `from ${moment(alarm.began_unix)}; its end is unknown: the monitor was down`;
  return `from ${moment(alarm.began_unix)} to ${moment(alarm.over_unix)}`;
}

export function updateAlarm(card, alarm) {
  card.alarm = alarm;
  const firing = alarm.state === "firing";
  card.classList.toggle("firing", firing);
  card.classList.toggle("critical", firing && alarm.severity === "critical");
  const head = card.querySelector(".head");
  put(head.children[0], firing ? (alarm.severity === "critical" ? "!!" : "!") : "");
  put(head.children[1], `${alarm.state.toUpperCase()} · ${alarm.severity} · ${alarm.formula.name} · ${alarm.agent} · ${lasted(alarm)}`);
  head.className = `head word-${alarm.state}`;
  put(card.querySelector(".summary"), alarm.state === "unknown" ? `When it fired: ${alarm.summary}` : alarm.summary);
  put(card.querySelector(".blindness"), firing && alarm.blind ? `blind: ${alarm.blind}` : "");
  const [why, page, proof, bundle, runbook] = card.querySelector(".actions").children;
  why.hidden = proof.hidden = bundle.hidden = !alarm.evidence;
  why.setAttribute("aria-label", `Why ${firing ? "does" : "did"} ${alarm.formula.name} fire for ${alarm.agent}?`);
  page.href = agentPage(alarm.agent);
  page.hidden = document.body.dataset.page === "agent";
  if (alarm.evidence) {
    proof.href = `evidence/${alarm.evidence.id}`;
    bundle.href = `evidence/${alarm.evidence.id}.zip`;
    bundle.setAttribute("aria-label", "evidence with model and policies, as a zip file");
  }
  if (known.explained === alarm.id) updateExplanation(alarm);
  runbook.hidden = !alarm.runbook;
  if (alarm.runbook) runbook.href = alarm.runbook;
}

// Texts about the explained alarm, updated while the dialog is open.
function updateExplanation(alarm) {
  put(at("why-title"), `${alarm.state.toUpperCase()} · ${alarm.formula.name} · ${alarm.agent}`);
  put(at("why-summary"), alarm.summary);
}

async function explain(alarm) {
  const picture = at("why-picture");
  known.explained = alarm.id;
  updateExplanation(alarm);
  put(at("why-moment"), `The picture shows the moment the alarm fired: step ${alarm.fired.seq}, ${moment(alarm.fired.time_unix)}.`);
  put(at("why-wait"), "recomputing and drawing the alarm from its evidence …");
  picture.hidden = true;
  at("why-links").replaceChildren();
  at("why").showModal();
  try {
    const drawn = await picture_of(alarm.evidence.id);
    if (picture.src) URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(drawn);
    picture.alt = in_words(await drawn.text()) || alarm.summary;
    picture.hidden = false;
    put(at("why-wait"), "");
  } catch (error) {
    put(at("why-wait"), `The picture cannot be drawn: ${error.message}`);
  }
  const bundle = element("a", "", "evidence with model and policies");
  bundle.href = `evidence/${alarm.evidence.id}.zip`;
  at("why-links").append(bundle, ` verify it: cfmon verify ${alarm.evidence.id}.zip`);
}

// The picture's description, extracted from its text: parsing it here would violate our content security policy.
function in_words(picture) {
  const found = picture.match(/<desc>([^<]*)<\/desc>/);
  return found ? found[1].replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&") : "";
}

// The first request draws the picture, which takes a moment.
async function picture_of(evidence) {
  for (;;) {
    const answer = await ask(`picture/${evidence}.svg`);
    if (answer.status !== 202) return answer.blob();
    await new Promise((done) => setTimeout(done, 300));
  }
}

// ---- parts of every page ----

const close = element("button", "", "Close");
close.type = "button";
close.id = "why-close";
const dialog = element("dialog");
dialog.id = "why";
dialog.setAttribute("aria-labelledby", "why-title");
function named(kind, id, className = "") {
  const made = element(kind, className);
  made.id = id;
  return made;
}
const picture = named("img", "why-picture");
picture.alt = "";
picture.hidden = true;
const wait = named("p", "why-wait");
wait.setAttribute("role", "status");
dialog.append(element("div", "bar", named("h2", "why-title"), close), named("p", "why-summary"));
dialog.append(named("p", "why-moment", "quiet"), wait, picture, named("p", "why-links"));
document.body.append(dialog);
close.addEventListener("click", () => dialog.close());

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
