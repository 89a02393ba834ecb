// The status page: asks for one document a second and brings the page up to date with it. No library, nothing from outside.
// Elements are kept and only their contents change, so that focus, selection and a screen reader's place survive.

// Milliseconds between two looks: the longest that a value shown is behind.
const EVERY = 1000;
const at = (id) => document.getElementById(id);
const known = { firing: null, token: sessionStorage.getItem("cfmon-token") };

async function ask(path) {
  const headers = known.token ? { Authorization: `Bearer ${known.token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(60_000) });
  if (answer.status === 401) {
    at("token-wrong").textContent = known.token && at("token").hidden === false ? "This is not the token." : "";
    at("token").hidden = false;
    throw new Error("a token is needed");
  }
  at("token").hidden = true;
  if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
  return answer;
}

function element(kind, className, ...children) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Make the children of `list` those of `items`, in order; each is made once and updated while its key is there.
function sync(list, items, key, make, update) {
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

// Of regret both are told: what is, and what would be.
function figures(formula) {
  if (formula.value === null) return "";
  return formula.nominal === null ? formula.value.toFixed(4) : `${formula.nominal.toFixed(4)} → ${formula.value.toFixed(4)}`;
}

function clock(seconds) {
  if (!(seconds > 0 && seconds < 8.64e12)) return "";
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

function ago(seconds, now) {
  const gone = Math.max(0, Math.round(now - seconds));
  if (gone < 120) return `${gone} s ago`;
  return gone < 7200 ? `${Math.round(gone / 60)} min ago` : `${Math.round(gone / 3600)} h ago`;
}

// ---- alarms ----

function makeAlarm() {
  const card = element("li", "fresh");
  const why = element("button", "", "Why?");
  why.type = "button";
  why.addEventListener("click", () => explain(card.alarm));
  const proof = element("a", "proof", "evidence");
  const runbook = element("a", "runbook", "what to do");
  runbook.target = "_blank";
  runbook.rel = "noreferrer";
  card.append(element("p", "head"), element("p", "summary"), element("p", "blindness word-blind"));
  card.append(element("div", "actions", why, proof, runbook));
  return card;
}

function updateAlarm(card, alarm) {
  card.alarm = alarm;
  card.classList.toggle("firing", alarm.state === "firing");
  const head = `${alarm.state.toUpperCase()} · ${alarm.severity} · ${alarm.formula.name} · ${alarm.agent} · since ${clock(alarm.since)}`;
  put(card.querySelector(".head"), head);
  card.querySelector(".head").className = `head word-${alarm.state}`;
  put(card.querySelector(".summary"), alarm.summary);
  put(card.querySelector(".blindness"), alarm.blind ? `blind here: ${alarm.blind}` : "");
  const [why, proof, runbook] = card.querySelector(".actions").children;
  why.hidden = proof.hidden = !alarm.evidence;
  why.setAttribute("aria-label", `Why does ${alarm.formula.name} fire for ${alarm.agent}?`);
  if (alarm.evidence) proof.href = `evidence/${alarm.evidence}`;
  runbook.hidden = !alarm.runbook;
  if (alarm.runbook) runbook.href = alarm.runbook;
}

function announce(firing) {
  const ids = new Set(firing.map((alarm) => alarm.id));
  const fresh = known.firing === null ? [] : firing.filter((alarm) => !known.firing.has(alarm.id));
  if (fresh.length) at("announce").textContent = fresh.map((alarm) => `Alarm. ${alarm.summary}`).join(" ");
  known.firing = ids;
}

async function explain(alarm) {
  const picture = at("why-picture");
  put(at("why-title"), `${alarm.formula.name} · ${alarm.agent}`);
  put(at("why-summary"), alarm.summary);
  put(at("why-wait"), "deriving and drawing it from the evidence …");
  picture.hidden = true;
  at("why-links").replaceChildren();
  at("why").showModal();
  try {
    const drawn = await picture_of(alarm.evidence);
    if (picture.src) URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(drawn);
    picture.alt = in_words(await drawn.text()) || alarm.summary;
    picture.hidden = false;
    put(at("why-wait"), "");
  } catch (error) {
    put(at("why-wait"), `It cannot be drawn: ${error.message}`);
  }
  const proof = element("a", "", "evidence");
  proof.href = `evidence/${alarm.evidence}`;
  at("why-links").append(proof, ` derive it again: cfmon verify ${alarm.evidence}.evidence --objects OBJECTS`);
}

// The picture's own description. It is cut out of the text: parsed here, its styles would be held against our policy.
function in_words(picture) {
  const found = picture.match(/<desc>([^<]*)<\/desc>/);
  return found ? found[1].replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&") : "";
}

// It is drawn when it is first asked for, which takes a moment.
async function picture_of(evidence) {
  for (;;) {
    const answer = await ask(`picture/${evidence}.svg`);
    if (answer.status !== 202) return answer.blob();
    await new Promise((done) => setTimeout(done, 300));
  }
}

// ---- what cannot be answered ----

function makeBlind() {
  return element("li", "blind", element("p", "head word-blind"), element("p", "detail"));
}

function updateBlind(card, row) {
  put(card.querySelector(".head"), `BLIND · ${row.agent} · ${row.formulas.join(", ")} · ${row.reason}`);
  put(card.querySelector(".detail"), row.detail || row.words);
}

// ---- agents ----

function makeRow() {
  const row = element("tr");
  for (const kind of ["", "", "", "", "number", "number", "", "number", ""]) row.append(element("td", kind));
  row.children[6].innerHTML = '<svg class="curve" viewBox="0 0 150 34" role="img"><line/><path class="nominal"/><path/><circle r="2.6"/></svg>';
  return row;
}

function updateRow(row, { agent, formula, first, now }) {
  const cells = row.children;
  put(cells[0], agent.name);
  cells[0].classList.toggle("repeated", !first);
  put(cells[1], formula.name);
  put(cells[2], formula.alarm);
  cells[2].className = `word-${formula.alarm}`;
  put(cells[3], formula.blind ? `blind: ${formula.blind}` : formula.outcome || "between episodes");
  cells[3].className = formula.blind ? "word-blind" : "";
  put(cells[4], figures(formula));
  put(cells[5], formula.threshold === null ? "" : String(formula.threshold));
  draw(cells[6].firstElementChild, formula.history, formula.threshold);
  put(cells[7], formula.seq === null ? "" : String(formula.seq));
  put(cells[8], ago(agent.last_message, now));
}

// The value, dashed where it is only what would be, and beside it nominal's. A break is a break in what was known:
// between episodes, and while blind.
function draw(curve, history, threshold) {
  const seen = history.flat().filter((value) => value !== null);
  const low = Math.min(0, threshold ?? 0, ...seen);
  const high = Math.max(threshold ?? 0, ...seen, seen.some((value) => value > 1) ? 0 : 1);
  const x = (index) => (150 * index) / Math.max(history.length - 1, 1);
  const y = (value) => 32 - (30 * (value - low)) / Math.max(high - low, 1e-9);
  const path = (which) => {
    let drawn = "";
    history.forEach((both, index) => {
      if (both[which] === null) return;
      const goes_on = index > 0 && history[index - 1][which] !== null;
      drawn += `${goes_on ? "L" : "M"}${x(index).toFixed(1)} ${y(both[which]).toFixed(1)}`;
    });
    return drawn;
  };
  const [line, nominal, value, dot] = curve.children;
  nominal.setAttribute("d", path(1));
  value.setAttribute("d", path(0));
  value.classList.toggle("instead", history.some((both) => both[1] !== null));
  line.setAttribute("visibility", threshold === null ? "hidden" : "visible");
  for (const [name, number] of [["x1", 0], ["x2", 150], ["y1", y(threshold ?? 0)], ["y2", y(threshold ?? 0)]]) {
    line.setAttribute(name, number);
  }
  const last = history.length ? history[history.length - 1][0] : null;
  dot.setAttribute("visibility", last === null ? "hidden" : "visible");
  if (last !== null) {
    dot.setAttribute("cx", x(history.length - 1));
    dot.setAttribute("cy", y(last));
  }
  const range = seen.length ? `from ${Math.min(...seen).toFixed(2)} to ${Math.max(...seen).toFixed(2)}` : "none yet";
  curve.setAttribute("aria-label", `last values: ${range}`);
}

// ---- the whole page ----

function show(told) {
  const { status, now } = told;
  const state = at("state");
  const wrong = told.problem;
  put(state, wrong || `watching ${told.count.agents} agent${told.count.agents === 1 ? "" : "s"}`);
  state.classList.toggle("wrong", Boolean(wrong));
  const model = `${status.model.name} ${status.model.sha256.slice(0, 12)}`;
  put(at("about"), `${status.client_id} at ${status.broker} · model ${model} · version ${status.version}`);
  document.title = `${told.count.firing ? `(${told.count.firing}) ` : ""}Counterfactual monitor`;

  announce(told.firing);
  sync(at("firing"), told.firing, (alarm) => alarm.id, makeAlarm, updateAlarm);
  sync(at("recent"), told.recent, (alarm) => `${alarm.id} ${alarm.revision}`, makeAlarm, updateAlarm);
  sync(at("blind"), told.blind, (row) => `${row.agent} ${row.reason}`, makeBlind, updateBlind);
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
  for (const name of ["firing", "blind", "agents", "recent"]) at(`${name}-none`).hidden = told[name].length > 0;
  const more = told.count.found - told.agents.length;
  put(at("agents-more"), more > 0 ? `${more} more agents: find them by name.` : "");
}

async function look() {
  try {
    const search = encodeURIComponent(at("search").value);
    show(await (await ask(`api/overview?search=${search}`)).json());
    document.body.dataset.live = "yes";
  } catch (error) {
    document.body.dataset.live = "no";
    put(at("state"), `No answer from the monitor: ${error.message}. What is shown may be old.`);
    at("state").classList.add("wrong");
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, EVERY));
  }
}

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  known.token = at("token-value").value;
  sessionStorage.setItem("cfmon-token", known.token);
  look();
});
at("search").addEventListener("input", look);
at("why-close").addEventListener("click", () => at("why").close());
document.addEventListener("visibilitychange", () => document.hidden || look());
// Links to data carry no token by themselves, so with one they are fetched and handed over.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a");
  if (!known.token || !link || link.origin !== location.origin || link.hash || link.target) return;
  event.preventDefault();
  const answer = await ask(link.href);
  const save = element("a");
  save.href = URL.createObjectURL(await answer.blob());
  save.download = link.pathname.split("/").pop();
  save.click();
});
watch();
