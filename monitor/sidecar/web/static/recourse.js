// Whether the missed goal of a formula could have been met by other decisions, and by which.
import { element, makeTable, many, number, part, put } from "./common.js";

const ANSWERS = {
  foresight: "Yes: the optimal policy, which knows nothing in advance, would have met the goal.",
  hindsight: "Only with knowledge of how it turned out. The optimal policy, which knows nothing in advance, would have missed the goal.",
  no: "No: nobody could have met the goal from the formula's offset on.",
};

export function makeRecourse() {
  const table = makeTable("Values from the formula's offset on, exact", [["decisions", ""], ["value", "number"], ["goal", ""]], ([name]) => name);
  const [answer, change, why] = [element("p", "answer"), element("p", "change"), element("p", "quiet reason")];
  const title = element("h3", "", "Could it have been avoided?");
  const section = element("section", "recourse", title, answer, change, element("div", "scroll", table), why);
  return part(section, (formula) => {
    const { recourse } = formula;
    section.hidden = !recourse;
    if (!recourse) return;
    const { avoidable, robust, changes, reason } = recourse;
    const unsure = robust === false ? " Other causal models may disagree." : robust ? " No causal model changes that." : "";
    put(answer, avoidable !== null ? ANSWERS[avoidable] + unsure : changes ? "Yes, by one other decision." : "Not known.");
    put(change, changed(recourse));
    table.render(avoidable === null ? [] : worlds(formula));
    put(why, reason && `${reason}.`);
  });
}

function worlds({ value, recourse: { avoidable, best, optimal, changes, hindsight } }) {
  const [known, unknown] = hindsight ? [", in hindsight", ", without hindsight"] : ["", ""];
  const row = (name, reached, met) => [name, number(reached), met ? "met" : "missed"];
  const rows = [row("as they were", value, false)];
  if (changes) rows.push(row(`${many(changes.count, "decision")} changed${known}`, changes.value, true));
  rows.push(row(`optimal${unknown}`, optimal, avoidable === "foresight"));
  if (hindsight) rows.push(row(`best${known}`, best, avoidable !== "no"));
  return rows;
}

function changed({ avoidable, changes, instead }) {
  if (!changes) return avoidable === "no" || avoidable === null ? "" : "Changing at most three decisions would not have met it.";
  const { count, seq, value, samples } = changes;
  const first = `${instead} at step ${seq}`;
  return count === 1
    ? `One decision: ${first}, with no other decision changed, would have given ${samples ? "about " : ""}${number(value)}.`
    : `${many(count, "decision")} would have given ${number(value)}; the first: ${first}.`;
}
