// Charts: the values of a formula over time, small (overview) or large (an agent's page), and the alarms of the last day.
// All charts of a page have the same axis of time. Lines are drawn in units of their own and stretched to their place, so
// nothing is measured; what must not be stretched (hatching, words) is placed in percent.
import { drawn, element, fromNow, lookBack, moment, number, part, put, required } from "./common.js";

export const WINDOW = 300;
const HEIGHT = 100;
const SQUARE = { small: 4, large: 7 };
const HATCH = "url(#hatch)";
const DAY = 1440;
const LANE = 20;
// Seconds between two marks of an axis of time, and at most how many marks an axis has.
const TIMES = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000, 31_536_000];
const MARKS = 6;

const known = (values) => values.filter((value) => value !== null);
const percent = (share) => `${Number((100 * share).toFixed(3))}%`;
const bounded = (value, low, high) => Math.min(Math.max(value, low), high);
// Large lists are not spread into arguments, of which there can only be so many.
const least = (values, start = Infinity) => values.reduce((one, two) => Math.min(one, two), start);
const most = (values, start = -Infinity) => values.reduce((one, two) => Math.max(one, two), start);

// Let `list` have `count` children; those that it has stay.
function resize(list, count, make) {
  while (list.childElementCount > count) list.lastElementChild.remove();
  while (list.childElementCount < count) list.append(make());
}

// Give `group` a child for each of `places`, whose numbers are the attributes `names`.
function place(group, places, names, make) {
  resize(group, places.length, make);
  places.forEach((numbers, n) => names.forEach((name, which) => group.children[n].setAttribute(name, numbers[which])));
}

// Rectangles, one for each box [x, width, y, height].
const fill = (group, boxes, attributes) => place(group, boxes, ["x", "width", "y", "height"], () => drawn("rect", attributes));

// Lines, one for each [x1, x2, y1, y2].
const rule = (group, lines) => place(group, lines, ["x1", "x2", "y1", "y2"], () => drawn("line", { class: "grid" }));

// Stretches without a value, from a hole until the next value or until the end: begin and length in percent, and why.
function holesOf({ time, value, ended }, { from, to }) {
  const holes = time.flatMap((when, n) => (value[n] === null ? [[bounded(when, from, to), bounded(time[n + 1] ?? to, from, to), ended.includes(when) ? "no episode" : "blind"]] : []));
  return holes.filter(([start, end]) => end > start).map(([start, end, why]) => [percent((start - from) / (to - from)), percent((end - start) / (to - from)), why]);
}

// From when to when an alarm was firing; one whose end is unknown has only a start.
function spanOf({ began_unix: began, over_unix: over, state }, now) {
  return [began ?? over ?? 0, over ?? (state === "firing" ? now : began ?? 0)];
}

function spansWithin(alarms, { from, to }) {
  const spans = alarms.map((alarm) => spanOf(alarm, to)).filter(([start, end]) => end >= from && start <= to);
  return spans.map(([start, end]) => [bounded(start, from, to), bounded(end, from, to)]);
}

const within = (times, { from, to }) => times.filter((when) => when >= from && when <= to);

// "from 0.1000 to 0.9000", of what is drawn.
function extent(time, values, from) {
  const shown = known(values.filter((_, n) => time[n] >= from));
  return shown.length ? `from ${number(least(shown))} to ${number(most(shown))}` : "none";
}

const countsOf = ({ ended }, alarms, axes) => `alarms: ${spansWithin(alarms, axes).length}; episodes ended: ${within(ended, axes).length}`;

// Whether the point `n` is the last value of an episode: the next point is its end. It is often the outcome, 0 or 1, and no
// forecast.
const endsEpisode = ({ time, value, ended }, n) => n + 1 < time.length && value[n] !== null && value[n + 1] === null && ended.includes(time[n + 1]);

const MEETS = { ">=": (value, bound) => value >= bound, ">": (value, bound) => value > bound, "<=": (value, bound) => value <= bound, "<": (value, bound) => value < bound };
// Whether a value is the bad answer: by default one that does not meet the threshold.
const misses = (value, { threshold, bad_while: bad }) => threshold !== null && MEETS[threshold.comparison](value, threshold.bound) === (bad === "holds");

// The ends of episodes that have a last value: [time, value].
const endingsOf = (curve) => [...curve.time.keys()].filter((n) => endsEpisode(curve, n)).map((n) => [curve.time[n + 1], curve.value[n]]);

// Nominal, alternative and required between two times; tinted: an alarm; hatched: no value; squares without a line: the
// last values of episodes, filled if they miss what is required, at the edge if they are beyond the axis; upright lines:
// their ends, on a `small` chart short, and only of those without a square. `axes`: `from` and `to` in seconds, `low` and
// `high` in the formula's unit, and the grid as `times` and `levels`.
function makeCurves(small) {
  const svg = drawn("svg", { class: "curve" });
  const lines = drawn("svg", { viewBox: `0 0 ${WINDOW} ${HEIGHT}`, preserveAspectRatio: "none", width: "100%", height: "100%" });
  const [holes, grid, fired, bars, squares] = [0, 1, 2, 3, 4].map(() => drawn("g", {}));
  const [bound, instead, value] = [drawn("line", { class: "required", x1: 0, x2: WINDOW }), drawn("path", { class: "instead" }), drawn("path", { class: "value" })];
  const [newest, ends] = [drawn("path", { class: "newest" }), drawn("path", { class: "ended" })];
  lines.append(grid, fired, ends, bound, instead, value, newest, bars);
  svg.append(holes, lines, squares);
  return part(svg, ({ formula, curve, alarms, axes }) => {
    const { threshold } = formula;
    const { time, value: own, alternative, ended } = curve;
    const { from, to, low, high } = axes;
    const x = (when) => (WINDOW * (when - from)) / (to - from);
    const y = (one) => 4 + ((HEIGHT - 8) * (high - one)) / (high - low);
    const endings = new Set([...time.keys()].filter((n) => endsEpisode(curve, n)));
    const path = (column) => {
      const hole = (n) => (column[n] ?? null) === null || endings.has(n);
      let line = "";
      column.forEach((one, n) => {
        if (hole(n)) return;
        line += `${hole(n - 1) ? "M" : "L"}${x(time[n]).toFixed(2)} ${y(one).toFixed(1)}`;
        if (hole(n - 1) && hole(n + 1)) line += "h.01";  // a dot
      });
      return line;
    };
    value.setAttribute("d", path(own));
    instead.setAttribute("d", path(alternative));
    const shown = endingsOf(curve).filter(([when]) => when >= from && when <= to);
    const squared = new Set(small ? shown.map(([when]) => when) : []);
    const upright = within(ended, axes).filter((when) => !squared.has(when));
    ends.setAttribute("d", upright.map((when) => `M${x(when).toFixed(2)} 0v${small ? HEIGHT / 4 : HEIGHT}`).join(""));
    const side = small ? SQUARE.small : SQUARE.large;
    fill(squares, shown.map(([when, one]) => [percent((when - from) / (to - from)), side, percent(y(bounded(one, low, high)) / HEIGHT), side]), {});
    shown.forEach(([, one], n) => squares.children[n].setAttribute("class", misses(one, formula) ? "ending missed" : "ending"));
    const last = own.length - 1;
    const current = last >= 0 && own[last] !== null && time[last] > from;
    newest.setAttribute("d", current ? `M${x(time[last]).toFixed(2)} ${y(own[last]).toFixed(1)}h.01` : "");
    bound.toggleAttribute("hidden", threshold === null);
    if (threshold !== null) for (const end of ["y1", "y2"]) bound.setAttribute(end, y(threshold.bound).toFixed(1));
    const marks = [...axes.times.map((when) => [x(when), x(when), 0, HEIGHT]), ...axes.levels.map((one) => [0, WINDOW, y(one), y(one)])];
    rule(grid, marks);
    fill(holes, holesOf(curve, axes).map(([start, long]) => [start, long, 0, "100%"]), { fill: HATCH });
    const spans = spansWithin(alarms, axes).map((span) => span.map(x));
    fill(fired, spans.map(([start, end]) => [start, Math.max(end - start, 1), 0, HEIGHT]), { class: "fired" });
    fill(bars, spans.map(([start, end]) => [start, Math.max(end - start, 2), HEIGHT - 8, 8]), { class: "fired-bar" });
  });
}

// The last minutes of a formula of an agent, which has `axes`.
export function makeTrace() {
  const curves = makeCurves(true);
  curves.setAttribute("role", "img");
  const frame = element("div", "trace", curves);
  return part(frame, ({ formula, alarms, axes }) => {
    const { last_minutes: curve, threshold } = formula;
    frame.dataset.high = String(axes.high);
    frame.dataset.low = String(axes.low);
    curves.render({ formula, curve, alarms, axes: { ...axes, levels: [] } });
    const needed = threshold === null ? "" : `; required ${required(threshold)}`;
    const words = `values of the last five minutes: ${extent(curve.time, curve.value, axes.from)}${needed}; ${countsOf(curve, alarms, axes)}`;
    curves.setAttribute("aria-label", words);
  });
}

// ---- the charts of an agent's page ----

// The smallest of 1, 2 and 5 times a power of ten that is at least `value`.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= value * (1 - 1e-9));
}

// One scale for all `values`, in round steps; small differences do not fill it. Probabilities stay within 0 and 1.
function levelsOf(values, probabilities) {
  const [lowest, highest] = [least(values), most(values)];
  const wide = Math.max(highest - lowest, probabilities ? 0.2 : 0.2 * Math.max(Math.abs(lowest), Math.abs(highest)) || 1);
  const step = round(wide / 4);
  const middle = (lowest + highest) / 2;
  const ends = [Math.min(lowest, middle - wide / 2), Math.max(highest, middle + wide / 2)];
  const [low, high] = ends.map((end) => (probabilities ? bounded(end, 0, 1) : end) / step);
  const [first, last] = [Math.floor(low + 1e-9), Math.ceil(high - 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, n) => Number(((first + n) * step).toPrecision(12)));
}

// Round times between two, in the reader's time zone.
function timesOf(from, to) {
  const step = TIMES.find((each) => (to - from) / each <= MARKS) ?? to - from;
  const zone = 60 * new Date(1000 * from).getTimezoneOffset();
  const first = Math.ceil((from - zone) / step) * step + zone;
  return Array.from({ length: Math.max(Math.floor((to - first) / step) + 1, 0) }, (_, n) => first + n * step);
}

// Axes for each formula: one of time, `seconds` long until now, or with null as long as there are points; one scale for all
// probabilities, and one for all else, without the last values of episodes: they are known outcomes, often far from the rest.
export function axesOf(formulas, now, seconds) {
  const first = least(formulas.flatMap(({ curve }) => curve.time.slice(0, 1)), now - 4);
  const [from, to] = [seconds === null ? first : now - seconds, now];
  const times = timesOf(from, to);
  const drawnOf = ({ curve, threshold }) => {
    const shown = curve.time.flatMap((when, n) => (when >= from && !endsEpisode(curve, n) ? [curve.value[n], curve.alternative[n]] : []));
    return known([...shown, threshold?.bound ?? null]);
  };
  const scale = (probabilities) => {
    const values = formulas.filter(({ probability }) => probability === probabilities).flatMap(drawnOf);
    const levels = levelsOf(values.length ? values : [0, 1], probabilities);
    return { levels, low: levels[0], high: levels[levels.length - 1] };
  };
  const scales = [scale(false), scale(true)];
  return formulas.map(({ probability }) => ({ from, to, times, ...scales[Number(probability)] }));
}

// The time that all charts of the page show the values of; null: the newest.
const cursor = { time: null, charts: new Set() };

function point(time) {
  cursor.time = time;
  for (const chart of cursor.charts) {
    if (chart.isConnected) chart.read();
    else cursor.charts.delete(chart);
  }
}

// Words beside or below a chart, each at its share of the length; below, none is cut off at the ends.
function makeAxis(className, side) {
  const axis = element("div", className);
  axis.setAttribute("aria-hidden", "true");
  return part(axis, (labels) => {
    resize(axis, labels.length, () => element("span"));
    labels.forEach(([share, text], n) => {
      put(axis.children[n], text);
      axis.children[n].style[side] = side === "left" ? `clamp(2rem, ${percent(share)}, 100% - 2rem)` : percent(share);
    });
  });
}

// An entry of the key, with the value at the cursor.
function makeKey(kind) {
  const [name, value] = [element("span"), element("b")];
  return part(element("li", "", element("i", kind), name, " ", value), ([text, figure]) => {
    put(name, text);
    put(value, figure);
  });
}

// The times that the arrow keys go to: of points and of ends of episodes.
const stopsOf = ({ time, ended }) => [...new Set([...time, ...ended])].sort((one, two) => one - two);

// The value before the hole `n`, with which an episode ended; the end of an episode that was not seen has none.
const lastOf = ({ time, value, ended }, n) => (n > 0 && value[n - 1] !== null && ended.includes(time[n]) ? `; value before it ${number(value[n - 1])}` : "");

// The curves of a formula with their axes, and their values at one time: under the pointer, by arrow keys, or the newest.
export function makeChart() {
  const [curves, levels, times, line] = [makeCurves(false), makeAxis("axis levels", "top"), makeAxis("axis times", "left"), element("div", "cursor")];
  const keys = [makeKey(""), makeKey("instead"), makeKey("required")];
  const [asked, outcomes, when, gaps] = [element("p", "quiet"), element("li"), element("li", "when"), element("div", "gaps")];
  const [plot, legend] = [element("div", "plot", curves, gaps, line), element("ul", "legend", ...keys, outcomes, when)];
  const frame = element("div", "chart", levels, plot, times);
  for (const [name, value] of [["role", "slider"], ["tabindex", "0"], ["aria-valuemin", "0"]]) frame.setAttribute(name, value);
  line.hidden = true;
  let shown = null;

  // The point that holds at a time: the last one before it; -1 before the first.
  const indexAt = (time) => shown.curve.time.findLastIndex((each) => each <= time);
  const read = () => {
    const { formula, curve, axes } = shown;
    const pointed = cursor.time !== null && cursor.time >= axes.from;
    const n = pointed ? indexAt(cursor.time) : curve.time.length - 1;
    const figure = (column) => number(column[n]) || "no value";
    keys[0].render([formula.alternative ? "nominal" : "value", figure(curve.value)]);
    keys[1].hidden = !formula.alternative;
    if (formula.alternative) keys[1].render([formula.alternative.name, figure(curve.alternative)]);
    keys[2].hidden = !formula.threshold;
    if (formula.threshold) keys[2].render(["required", required(formula.threshold)]);
    const over = curve.value[n] === null ? curve.ended.findLast((each) => each >= curve.time[n] && (!pointed || each <= cursor.time)) : undefined;
    put(when, `${pointed ? "at" : "newest, at"} ${moment(over ?? curve.time[n] ?? cursor.time)}${over === undefined ? "" : `: episode ended${lastOf(curve, n)}`}`);
    line.hidden = !pointed;
    line.style.left = percent((Math.max(cursor.time, axes.from) - axes.from) / (axes.to - axes.from));
    const stops = stopsOf(curve);
    frame.setAttribute("aria-valuemax", String(stops.length - 1));
    frame.setAttribute("aria-valuenow", String(pointed ? Math.max(stops.findLastIndex((each) => each <= cursor.time), 0) : stops.length - 1));
    frame.setAttribute("aria-valuetext", [...keys.filter((key) => !key.hidden), when].map((each) => each.textContent).join("; "));
  };

  plot.addEventListener("pointermove", ({ clientX }) => {
    const { left, width } = plot.getBoundingClientRect();
    point(shown.axes.from + bounded((clientX - left) / width, 0, 1) * (shown.axes.to - shown.axes.from));
  });
  plot.addEventListener("pointerleave", () => point(null));
  frame.addEventListener("keydown", (event) => {
    const time = stopsOf(shown.curve);
    const [start, last] = [time.findIndex((each) => each >= shown.axes.from), time.length - 1];
    const n = cursor.time === null ? last : time.findLastIndex((each) => each <= cursor.time);
    const to = { ArrowLeft: n - 1, ArrowDown: n - 1, ArrowRight: n + 1, ArrowUp: n + 1, PageDown: n - 10, PageUp: n + 10, Home: start, End: last }[event.key];
    if (event.key === "Escape" && cursor.time !== null) {
      event.preventDefault();
      point(null);
    }
    if (to === undefined || start < 0) return;
    event.preventDefault();
    point(time[bounded(to, start, last)]);
  });
  frame.addEventListener("blur", () => point(null));

  const whole = element("div", "", asked, legend, frame);
  whole.read = read;
  return part(whole, ({ formula, alarms, axes }) => {
    const { curve, threshold } = formula;
    whole.hidden = curve.time.length === 0;
    if (whole.hidden) return;
    shown = { formula, curve, axes };
    cursor.charts.add(whole);
    curves.render({ formula, curve, alarms, axes });
    asked.hidden = !formula.profile.some(({ offset }) => offset > 0);
    const [back, later] = [lookBack(formula), fromNow(formula)];
    put(asked, asked.hidden ? "" : `The curves are judged ${back}, as the formula asks${later && `; from now on it is ${later}`}.`);
    const { from, to, low, high } = axes;
    const last = endingsOf(curve).filter(([when]) => when >= from && when <= to);
    const missed = last.filter(([, one]) => misses(one, formula)).length;
    outcomes.hidden = threshold === null || last.length === 0;
    put(outcomes, outcomes.hidden ? "" : `last values of episodes: □ ${last.length - missed} goal met, ■ ${missed} goal missed`);
    levels.render(axes.levels.map((one) => [(0.04 + (0.92 * (high - one)) / (high - low)), String(one)]));
    const long = axes.times.length > 1 && axes.times[1] - axes.times[0] >= 43_200;
    times.render(axes.times.map((each) => [(each - from) / (to - from), moment(each).slice(...(long ? [0, 10] : [11, 19]))]));
    const holes = holesOf(curve, axes);
    resize(gaps, holes.length, () => element("div", "", element("span")));
    holes.forEach(([start, long, why], n) => {
      Object.assign(gaps.children[n].style, { left: start, width: long });
      put(gaps.children[n].firstChild, why);
    });
    const needed = threshold === null ? "" : `; required ${required(threshold)}`;
    const began = Math.max(curve.time[0], from);
    frame.setAttribute("aria-label", `${formula.name}: values ${extent(curve.time, curve.value, from)}, ${moment(began)} to ${moment(to)}${needed}; ${countsOf(curve, alarms, axes)}`);
    read();
  });
}

// The last day of an agent's alarms.
export function makeLane() {
  const svg = drawn("svg", { class: "lane", viewBox: `0 0 ${DAY} ${LANE}`, preserveAspectRatio: "none", role: "img" });
  const [grid, bars] = [drawn("g", {}), drawn("g", {})];
  rule(grid, [1, 2, 3].map((quarter) => (quarter * DAY) / 4).map((x) => [x, x, 0, LANE]));
  svg.append(grid, bars);
  return part(svg, ({ alarms, now }) => {
    const x = (when) => DAY - (now - when) / 60;
    fill(bars, alarms.map((alarm) => {
      const [from, to] = spanOf(alarm, now).map(x);
      return [from, Math.max(to - from, 5), 3, LANE - 6];
    }), { class: "alarm" });
    alarms.forEach(({ state }, n) => bars.children[n].setAttribute("data-state", state));
    const said = alarms.map(({ formula, state, began_unix: began }) => `${formula}, ${state}, from ${moment(began)}`);
    svg.setAttribute("aria-label", `Alarms of the last day: ${said.join("; ")}`);
  });
}
