// Bands on a model learned from data: what the recordings leave open of each value, drawn and in words.
import { element, number, put, sync } from "./common.js";

const WIDTH = 220;
const MIDDLE = 13;

function drawn(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const percent = (share) => `${Number((100 * share).toPrecision(6))} %`;

export const between = (band) => (band ? `${number(band[0])} to ${number(band[1])}` : "");

// The widest band of the agent's own value, named; empty on any other model.
export function widest(formula) {
  const { guaranteed, credible } = formula.bands?.value ?? {};
  const whose = formula.alternative ? "nominal: " : "";
  if (guaranteed) return `${whose}guaranteed ${between(guaranteed)}`;
  return credible ? `${whose}credible ${between(credible)}` : "";
}

export function makeBands() {
  const heads = ["", "value", "credible", "guaranteed", "support", "drawn"].map((text) => {
    const head = element("th", ["", "drawn"].includes(text) ? "" : "number", text);
    head.scope = "col";
    return head;
  });
  const caption = element("caption", "", "Circle: value; solid bar: credible; dashed outline: guaranteed; dotted: required");
  const table = element("table", "profile", caption, element("thead", "", element("tr", "", ...heads)), element("tbody"));
  const section = element("section", "bands", element("h3", "", "What the recordings leave open"), element("div", "scroll", table));
  section.append(element("p", "rests"), element("p", "visit"), element("p", "quiet how"));
  return section;
}

export function updateBands(section, formula) {
  const { bands } = formula;
  section.hidden = !bands;
  if (!bands) return;
  const rows = [{ name: formula.alternative ? "nominal" : "value", value: formula.value, bands: bands.value }];
  if (formula.alternative) rows.push({ name: formula.alternative.name, value: formula.alternative.value, bands: bands.alternative });
  const known = rows.filter((row) => row.bands && row.value !== null);
  const scale = scaleOf(known, formula.threshold);
  const heads = section.querySelectorAll("th");
  put(heads[2], bands.level === null ? "credible" : `credible (${percent(bands.level)})`);
  put(heads[3], bands.delta === null ? "guaranteed" : `guaranteed (${percent(1 - bands.delta)})`);
  section.querySelector(".scroll").hidden = known.length === 0;
  sync(section.querySelector("tbody"), known, (row) => row.name, makeRow, (line, row) => updateRow(line, row, scale, formula.threshold));
  put(section.querySelector(".rests"), rests(bands));
  put(section.querySelector(".visit"), visit(bands));
  put(section.querySelector(".how"), how(bands));
}

function makeRow() {
  const svg = drawn("svg", { class: "strip", viewBox: `0 0 ${WIDTH} 26`, role: "img" });
  svg.append(drawn("line", { class: "axis", x1: 0, x2: WIDTH, y1: MIDDLE, y2: MIDDLE }), drawn("rect", { class: "guaranteed" }));
  svg.append(drawn("rect", { class: "credible" }), drawn("line", { class: "required" }), drawn("circle", { r: 4 }));
  const cells = ["", "number", "number", "number", "number", ""].map((kind) => element("td", kind));
  cells[5].append(svg);
  return element("tr", "", ...cells);
}

function updateRow(line, row, scale, threshold) {
  const { credible, guaranteed, support } = row.bands;
  const words = [row.name, number(row.value), between(credible) || "none", between(guaranteed) || "none", support === null ? "" : String(support)];
  words.forEach((text, n) => put(line.children[n], text));
  const svg = line.querySelector("svg");
  const [, outline, bar, required, circle] = svg.children;
  place(outline, guaranteed, scale, 16);
  place(bar, credible, scale, 8);
  required.setAttribute("visibility", threshold === null ? "hidden" : "visible");
  const across = scale(threshold?.bound ?? 0);
  for (const [name, at] of [["x1", across], ["x2", across], ["y1", 0], ["y2", 26]]) required.setAttribute(name, at);
  circle.setAttribute("cx", scale(row.value));
  circle.setAttribute("cy", MIDDLE);
  const bands = [credible && `credible ${between(credible)}`, guaranteed && `guaranteed ${between(guaranteed)}`].filter(Boolean);
  svg.setAttribute("aria-label", `${row.name}: ${[number(row.value), ...bands].join(", ")}`);
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
  return `The answer rests on at least ${support} visit${support === 1 ? "" : "s"} of each row that matters (90 % of the weight).`;
}

function visit({ to_visit: pairs }) {
  if (!pairs.length) return "";
  return `To narrow it, record more visits of: ${pairs.map(([state, action]) => `action ${action} in state ${state}`).join(", ")}.`;
}

function how({ draws, seed, delta, reason }) {
  const parts = [];
  if (draws) parts.push(`Credible: ${draws} models drawn from the posterior with seed ${seed}.`);
  if (delta !== null) parts.push("Guaranteed: over every causal model and every row in the confidence set.");
  if (reason) parts.push(`${reason}.`);
  return parts.join(" ");
}
