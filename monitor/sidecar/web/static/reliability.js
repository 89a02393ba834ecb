// Forecasts and outcomes of a formula: one sentence, the reliability diagram, and its numbers as a table.
import { drawn, element, makeRow, makeTable, many, part, put } from "./common.js";

// Fewest forecasts for which a diagram is meaningful.
const FEW = 10;
const SIZE = 328;
const EDGE = 40;
const TURN = SIZE - EDGE - 8;

const x = (share) => EDGE + TURN * share;
const y = (share) => 8 + TURN * (1 - share);

// With more decimals near 0 and 1, because 0.999 is not 1.
function decimals(share) {
  if (share > 0.9999 && share < 1) return "more than 0.9999";
  if (share < 0.0001 && share > 0) return "less than 0.0001";
  const near = Math.min(share, 1 - share);
  return share.toFixed(near > 0 && near < 0.01 ? 4 : 2);
}

const range = ([low, high]) => `${decimals(low)} to ${decimals(high)}`;

export function makeReliability() {
  const columns = ["forecast", "came true", "95 % interval", "count", "agree"].map((text) => [text, "number"]);
  const caption = "Forecasts in ten groups: mean forecast, and the fraction that came true";
  const table = makeTable(caption, columns, (bin) => String(bin.from), makeGroup);
  const svg = drawn("svg", { class: "diagram", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" });
  const [told, scored, beside] = [element("p", "told"), element("p", "quiet score"), element("div", "beside", svg, table)];
  const section = element("section", "reliability", element("h3", "", "Forecasts and outcomes"), told, beside, scored);
  return part(section, (formula) => {
    const counted = formula.calibration;
    const enough = counted !== null && counted.resolved >= FEW;
    put(told, enough ? sentence(counted) : missing(formula));
    beside.hidden = !enough;
    put(scored, enough ? score(counted) : "");
    if (!enough) return;
    table.render(counted.bins);
    draw(svg, counted);
  });
}

function makeGroup() {
  const row = makeRow(["number", "number", "number", "number", "number"]);
  const { render } = row;
  return part(row, (bin) => {
    render([decimals(bin.forecast), decimals(bin.came_true), range(bin.interval), String(bin.count), bin.agrees ? "yes" : "NO"]);
    row.className = bin.agrees ? "" : "word-blind";
  });
}

function missing({ calibration, not_followed: why }) {
  if (calibration === null) return `Forecasts are not compared with outcomes: ${why}.`;
  return `Too few forecasts have an outcome yet: ${calibration.resolved} of ${FEW}.${dropped(calibration)}`;
}

// About the group with the most forecasts, and any group that does not agree.
function sentence({ bins }) {
  const most = bins.reduce((one, two) => (two.count > one.count ? two : one));
  const off = bins.filter((bin) => !bin.agrees).length;
  const judged = off === 0 ? "Forecasts and outcomes agree within chance."
    : `In ${off} of ${bins.length} groups the forecasts are outside the 95 % interval.`;
  return `Of ${many(most.count, "forecast")} of about ${decimals(most.forecast)}, the fraction ${decimals(most.came_true)} came true. ${judged}`;
}

function score(counted) {
  return `Brier score ${counted.brier_score.toFixed(4)} (0 is perfect); ${counted.brier_score_expected.toFixed(4)} is its mean if every forecast `
    + `is correct. ${counted.resolved} non-overlapping forecasts have an outcome.${dropped(counted)}`;
}

function dropped({ dropped: count }) {
  if (count === 0) return "";
  return ` ${count} more ${count === 1 ? "was" : "were"} dropped: the episode was cut off, steps were missing, or another policy ran.`;
}

function draw(svg, { bins }) {
  const said = JSON.stringify(bins);
  if (svg.dataset.said === said) return;
  svg.dataset.said = said;
  const parts = [];
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(drawn("line", { class: "grid", x1: x(tick), x2: x(tick), y1: y(0), y2: y(1) }));
    parts.push(drawn("line", { class: "grid", x1: x(0), x2: x(1), y1: y(tick), y2: y(tick) }));
    parts.push(drawn("text", { x: x(tick), y: y(0) + 14, "text-anchor": tick === 1 ? "end" : "middle" }, String(tick)));
    parts.push(drawn("text", { x: x(0) - 5, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  parts.push(drawn("text", { x: x(0.5), y: SIZE - 4, "text-anchor": "middle" }, "forecast"));
  parts.push(drawn("text", { x: 10, y: y(0.5), "text-anchor": "middle", transform: `rotate(-90 10 ${y(0.5)})` }, "came true"));
  parts.push(drawn("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  for (const { forecast, came_true: share, interval, count, agrees } of bins) {
    const of = agrees ? "agrees" : "off";
    const [low, high] = interval;
    parts.push(drawn("line", { class: `interval ${of}`, x1: x(forecast), x2: x(forecast), y1: y(low), y2: y(high) }));
    for (const end of interval) {
      parts.push(drawn("line", { class: `interval ${of}`, x1: x(forecast) - 3, x2: x(forecast) + 3, y1: y(end), y2: y(end) }));
    }
    parts.push(agrees ? drawn("circle", { class: of, cx: x(forecast), cy: y(share), r: 4 })
      : drawn("rect", { class: of, x: x(forecast) - 4.5, y: y(share) - 4.5, width: 9, height: 9 }));
    const below = low > 0.06;  // else it would cover the axis
    const many = count < 10_000 ? String(count) : `${Math.floor(count / 1000)}k`;
    parts.push(drawn("text", { x: x(forecast), y: below ? y(low) + 12 : y(high) - 4, "text-anchor": "middle" }, many));
  }
  svg.replaceChildren(...parts);
  const texts = bins.map((bin) => `forecast ${decimals(bin.forecast)}: of ${bin.count}, the fraction ${decimals(bin.came_true)} came true`);
  svg.setAttribute("aria-label", `Reliability diagram. ${texts.join("; ")}`);
}
