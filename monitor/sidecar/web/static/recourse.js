// Whether the missed goal of a formula could have been met by other decisions, and by which.
import { element, number, put, sync } from "./common.js";

const ANSWERS = {
  foresight: "Yes: the optimal policy, which knows nothing in advance, would have met the goal.",
  hindsight: "Only with knowledge of how it turned out. The optimal policy, which knows nothing in advance, would have missed the goal.",
  no: "No: nobody could have met the goal from the formula's offset on.",
};

export function makeRecourse() {
  const heads = ["decisions", "value", "goal"].map((text) => {
    const head = element("th", text === "value" ? "number" : "", text);
    head.scope = "col";
    return head;
  });
  const caption = element("caption", "", "Values from the formula's offset on, exact");
  const table = element("table", "profile", caption, element("thead", "", element("tr", "", ...heads)), element("tbody"));
  const section = element("section", "recourse", element("h3", "", "Could it have been avoided?"), element("p", "answer"));
  section.append(element("p", "change"), element("div", "scroll", table), element("p", "quiet reason"));
  return section;
}

export function updateRecourse(section, formula) {
  const { recourse } = formula;
  section.hidden = !recourse;
  if (!recourse) return;
  const { avoidable, robust, reason } = recourse;
  const unsure = robust === false ? " Other causal models may disagree." : robust ? " No causal model changes that." : "";
  put(section.querySelector(".answer"), avoidable === null ? "Not known." : ANSWERS[avoidable] + unsure);
  put(section.querySelector(".change"), avoidable === null ? "" : changed(recourse));
  section.querySelector(".scroll").hidden = avoidable === null;
  sync(section.querySelector("tbody"), avoidable === null ? [] : worlds(formula), (row) => row.name, makeRow, updateRow);
  put(section.querySelector(".reason"), reason && `${reason}.`);
}

function worlds({ value, recourse: { avoidable, best, optimal, changes, hindsight } }) {
  const [known, unknown] = hindsight ? [", in hindsight", ", without hindsight"] : ["", ""];
  const rows = [{ name: "as they were", value, met: false }];
  if (changes) rows.push({ name: `${decisions(changes.count)} changed${known}`, value: changes.value, met: true });
  rows.push({ name: `optimal${unknown}`, value: optimal, met: avoidable === "foresight" });
  if (hindsight) rows.push({ name: `best${known}`, value: best, met: avoidable !== "no" });
  return rows;
}

const makeRow = () => element("tr", "", element("td"), element("td", "number"), element("td"));

function updateRow(line, { name, value, met }) {
  [name, number(value), met ? "met" : "missed"].forEach((text, n) => put(line.children[n], text));
}

const decisions = (count) => `${count} decision${count === 1 ? "" : "s"}`;

const action = (index, name) => name || `action ${index}`;

function changed({ avoidable, changes }) {
  if (!changes) return avoidable === "no" ? "" : "Changing at most three decisions would not have met it.";
  const { count, seq, taken, taken_name: was, proposed, proposed_name: other, value } = changes;
  const instead = taken === null ? "" : ` instead of ${action(taken, was)}`;
  const first = `${action(proposed, other)}${instead} at step ${seq}`;
  return count === 1
    ? `One decision: ${first}, with no other decision changed, would have given ${number(value)}.`
    : `${decisions(count)} would have given ${number(value)}; the first: ${first}.`;
}
