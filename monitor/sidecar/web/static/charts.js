// Charts of the overview: the last minutes of a formula, and the alarms of the last day. All charts of a kind have the same
// axis of time. A unit across is a second or a minute, and the chart is stretched to its place, so nothing is measured.
import { drawn, moment, number, part, required } from "./common.js";

export const WINDOW = 300;
const HEIGHT = 100;
const HATCH = "url(#hatch)";
const DAY = 1440;
const LANE = 20;

// Values from 0 to 1, or over all that is drawn if there is more, as with rewards.
function scaleOf(values) {
  const low = values.reduce((one, two) => Math.min(one, two), 0);
  const high = values.reduce((one, two) => Math.max(one, two), 1);
  return { low, high, y: (value) => 4 + ((HEIGHT - 8) * (high - value)) / (high - low) };
}

// The children of `group` as rectangles, one for each box [x, width, y, height].
function fill(group, boxes, attributes) {
  while (group.childElementCount > boxes.length) group.lastElementChild.remove();
  while (group.childElementCount < boxes.length) group.append(drawn("rect", attributes));
  boxes.forEach((box, n) => ["x", "width", "y", "height"].forEach((name, which) => group.children[n].setAttribute(name, box[which])));
}

// Stretches without a value, from a hole until the next value or until now.
function holesOf(time, value, x) {
  const holes = [];
  time.forEach((when, n) => {
    if (value[n] !== null) return;
    const [from, to] = [Math.max(x(when), 0), n + 1 < time.length ? x(time[n + 1]) : WINDOW];
    if (to > from) holes.push([from, to - from, 0, HEIGHT]);
  });
  return holes;
}

// From when to when an alarm was firing; one whose end is unknown has only a start.
function spanOf({ began_unix: began, over_unix: over, state }, now) {
  return [began ?? over ?? 0, over ?? (state === "firing" ? now : began ?? 0)];
}

// The last minutes of a formula of an agent: nominal, alternative, required; tinted: an alarm; hatched: no value.
export function makeTrace() {
  const svg = drawn("svg", { class: "curve", viewBox: `0 0 ${WINDOW} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const [holes, fired, bars] = [drawn("g", {}), drawn("g", {}), drawn("g", {})];
  const [bound, instead, value] = [drawn("line", { class: "required", x1: 0, x2: WINDOW }), drawn("path", { class: "instead" }), drawn("path", { class: "value" })];
  const newest = drawn("path", { class: "newest" });
  for (let x = 60; x < WINDOW; x += 60) svg.append(drawn("line", { class: "grid", x1: x, x2: x, y1: 0, y2: HEIGHT }));
  svg.append(holes, fired, bound, instead, value, newest, bars);
  const frame = document.createElement("div");
  frame.className = "trace";
  frame.append(svg);
  return part(frame, ({ formula, alarms, now }) => {
    const { time, value: own, alternative } = formula.last_minutes;
    const threshold = formula.threshold?.bound ?? null;
    const known = [...own, ...alternative].filter((one) => one !== null);
    const { low, high, y } = scaleOf(threshold === null ? known : [...known, threshold]);
    const x = (when) => when - now + WINDOW;
    const path = (column) => {
      let line = "";
      column.forEach((one, n) => {
        if (one === null) return;
        line += `${n > 0 && column[n - 1] !== null ? "L" : "M"}${x(time[n]).toFixed(2)} ${y(one).toFixed(1)}`;
      });
      return line;
    };
    frame.dataset.high = String(Number(high.toPrecision(3)));
    frame.dataset.low = String(Number(low.toPrecision(3)));
    value.setAttribute("d", path(own));
    instead.setAttribute("d", path(alternative));
    const last = own.length - 1;
    const current = last >= 0 && own[last] !== null && x(time[last]) > 0;
    newest.setAttribute("d", current ? `M${x(time[last]).toFixed(2)} ${y(own[last]).toFixed(1)}h.01` : "");
    bound.setAttribute("visibility", threshold === null ? "hidden" : "visible");
    for (const name of ["y1", "y2"]) bound.setAttribute(name, y(threshold ?? 0).toFixed(1));
    fill(holes, holesOf(time, own, x), { fill: HATCH });
    const spans = alarms.map((alarm) => spanOf(alarm, now).map(x)).filter(([, to]) => to >= 0);
    fill(fired, spans.map(([from, to]) => [from, Math.max(to - from, 1), 0, HEIGHT]), { class: "fired" });
    fill(bars, spans.map(([from, to]) => [from, Math.max(to - from, 2), HEIGHT - 8, 8]), { class: "fired-bar" });
    const shown = own.filter((one, n) => one !== null && x(time[n]) >= 0);
    const values = shown.length ? `from ${number(Math.min(...shown))} to ${number(Math.max(...shown))}` : "none";
    const needed = threshold === null ? "" : `; required ${required(formula.threshold)}`;
    svg.setAttribute("aria-label", `values of the last five minutes: ${values}${needed}; alarms: ${spans.length}`);
  });
}

// The last day of an agent's alarms.
export function makeLane() {
  const svg = drawn("svg", { class: "lane", viewBox: `0 0 ${DAY} ${LANE}`, preserveAspectRatio: "none", role: "img" });
  const bars = drawn("g", {});
  for (let x = DAY / 4; x < DAY; x += DAY / 4) svg.append(drawn("line", { class: "grid", x1: x, x2: x, y1: 0, y2: LANE }));
  svg.append(bars);
  return part(svg, ({ alarms, now }) => {
    const x = (when) => DAY - (now - when) / 60;
    fill(bars, alarms.map((alarm) => {
      const [from, to] = spanOf(alarm, now).map(x);
      return [from, Math.max(to - from, 5), 3, LANE - 6];
    }), { class: "alarm" });
    alarms.forEach(({ state }, n) => bars.children[n].setAttribute("data-state", state));
    const said = alarms.map(({ formula, state, began_unix: began }) => `${formula}, ${state}, from ${began === null ? "an unknown time" : moment(began)}`);
    svg.setAttribute("aria-label", `Alarms of the last day: ${said.join("; ")}`);
  });
}
