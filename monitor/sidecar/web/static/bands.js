// Bands on a model learned from data: what the recordings leave open of each value, drawn and in words.
import { between, drawn, element, makeTable, many, number, part, put } from "./common.js";

const WIDTH = 220;
const MIDDLE = 13;

const percent = (share) => `${Number((100 * share).toPrecision(6))} %`;

// The widest band of the agent's own value, named; empty on any other model.
export function widest(formula) {
  const { guaranteed, credible } = formula.bands?.value ?? {};
  const whose = formula.alternative ? "nominal: " : "";
  if (guaranteed) return `${whose}guaranteed ${between(guaranteed)}`;
  return credible ? `${whose}credible ${between(credible)}` : "";
}

// Of a formula of an agent, or of an alarm.
export function makeBands() {
  const columns = [["", ""], ["value", "number"], ["credible", "number"], ["guaranteed", "number"], ["support", "number"], ["drawn", ""]];
  const caption = "Circle: value; solid bar: credible; dashed outline: guaranteed; dotted: required";
  const table = makeTable(caption, columns, ({ name }) => name, makeRow);
  const [restsOn, toVisit, obtained] = [element("p", "rests"), element("p", "visit"), element("p", "quiet how")];
  const title = element("h3", "", "What the recordings leave open");
  const section = element("section", "bands", title, element("div", "scroll", table), restsOn, toVisit, obtained);
  return part(section, ({ value, bands, alternative, threshold }) => {
    section.hidden = !bands;
    if (!bands) return;
    const rows = [{ name: alternative ? "nominal" : "value", value, bands: bands.value }];
    if (alternative) rows.push({ name: alternative.name, value: alternative.value, bands: bands.alternative });
    const known = rows.filter((row) => row.bands && row.value !== null);
    const scale = scaleOf(known, threshold);
    put(table.heads[2], bands.level === null ? "credible" : `credible (${percent(bands.level)})`);
    put(table.heads[3], bands.delta === null ? "guaranteed" : `guaranteed (${percent(1 - bands.delta)})`);
    table.render(known.map((row) => ({ ...row, scale, threshold })));
    put(restsOn, rests(bands));
    put(toVisit, visit(bands));
    put(obtained, how(bands));
  });
}

function makeRow() {
  const [axis, outline] = [drawn("line", { class: "axis", x1: 0, x2: WIDTH, y1: MIDDLE, y2: MIDDLE }), drawn("rect", { class: "guaranteed" })];
  const [bar, required, circle] = [drawn("rect", { class: "credible" }), drawn("line", { class: "required" }), drawn("circle", { r: 4 })];
  const svg = drawn("svg", { class: "width", viewBox: `0 0 ${WIDTH} 26`, role: "img" });
  svg.append(axis, outline, bar, required, circle);
  const cells = ["", "number", "number", "number", "number"].map((kind) => element("td", kind));
  return part(element("tr", "", ...cells, element("td", "", svg)), ({ name, value, bands, scale, threshold }) => {
    const { credible, guaranteed, support } = bands;
    const words = [name, number(value), between(credible) || "none", between(guaranteed) || "none", support === null ? "" : String(support)];
    words.forEach((text, n) => put(cells[n], text));
    place(outline, guaranteed, scale, 16);
    place(bar, credible, scale, 8);
    required.setAttribute("visibility", threshold === null ? "hidden" : "visible");
    const across = scale(threshold?.bound ?? 0);
    for (const [name, at] of [["x1", across], ["x2", across], ["y1", 0], ["y2", 26]]) required.setAttribute(name, at);
    circle.setAttribute("cx", scale(value));
    circle.setAttribute("cy", MIDDLE);
    const said = [credible && `credible ${between(credible)}`, guaranteed && `guaranteed ${between(guaranteed)}`].filter(Boolean);
    svg.setAttribute("aria-label", `${name}: ${[number(value), ...said].join(", ")}`);
  });
}

// A band as wide as a point is still drawn, two pixels wide.
function place(rectangle, band, scale, height) {
  rectangle.setAttribute("visibility", band ? "visible" : "hidden");
  if (!band) return;
  const width = Math.max(scale(band[1]) - scale(band[0]), 2);
  for (const [name, at] of [["x", scale(band[0])], ["width", width], ["y", MIDDLE - height / 2], ["height", height]]) {
    rectangle.setAttribute(name, at);
  }
}

// From value to pixel: probabilities from 0 to 1, rewards over all that is drawn.
function scaleOf(rows, threshold) {
  const drawn = rows.flatMap((row) => [row.value, ...(row.bands.credible ?? []), ...(row.bands.guaranteed ?? [])]);
  if (threshold !== null) drawn.push(threshold.bound);
  const low = Math.min(0, ...drawn);
  const high = Math.max(1, ...drawn);
  return (value) => 5 + ((WIDTH - 10) * (value - low)) / (high - low);
}

function rests({ support }) {
  if (support === null) return "";
  if (support === 0) return "The answer rests on rows that were never recorded (within 90 % of the weight).";
  return `The answer rests on at least ${many(support, "visit")} of each row that matters (90 % of the weight).`;
}

function visit({ to_visit: pairs }) {
  if (!pairs.length) return "";
  return `To narrow it, record more visits of: ${pairs.map(([state, action]) => `action ${action} in state ${state}`).join(", ")}.`;
}

function how({ draws, seed, fits, delta, reason }) {
  const parts = [];
  if (draws) parts.push(`Credible: ${draws} models drawn from the posterior with seed ${seed}.`);
  if (fits) parts.push(`Credible: ${fits} fits to resampled recordings.`);
  if (delta !== null) parts.push("Guaranteed: over every causal model and every row in the confidence set.");
  if (reason) parts.push(`${reason}.`);
  return parts.join(" ");
}
