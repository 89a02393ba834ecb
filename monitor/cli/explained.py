"""The values of other decisions: in words for `cfmon check --explain`, and as plain data for `--json`."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import to_builtins
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from monitor.exact.recourse import Decision, Effect, Plan, PlannedChange, RecourseReport
from monitor.model import MDP
from monitor.model.action_names import action_in_words

SAME = 1e-12
"""Largest difference of values that counts as rounding."""
DIGITS = 9
"""Decimals to which the values of actions are compared.

If several actions are equally good, the one with the lowest number is named.
"""
AVOIDABLE = {
    "foresight": "yes, with foresight: the best policy without hindsight meets the goal",
    "hindsight": "only with hindsight: the best policy without it misses the goal",
    "no": "no: no decisions meet the goal",
}


def explanation_data(report: RecourseReport, model: MDP) -> dict[str, object]:
    """Return every field of the report under its name, and the names of the model's actions."""
    return {**to_builtins(report), "action_names": list(model.action_names)}


def explanation(report: RecourseReport, model: MDP) -> RenderableType:
    """Return values, plans and decisions in words. Values are exact. Values that use hindsight are marked."""
    words = _Words(report, model)
    parts: list[RenderableType] = [words.values(), Text("  with few changes"), *words.plans()]
    if report.avoidable is not None:
        size = _count(report.within, "decision")
        parts.append(Text(f"  one decision at a time; degree of responsibility: within sets of at most {size}"))
    return Group(*parts, words.decisions(), Text(""))


class _Words:
    """Texts and tables on one report."""

    def __init__(self, report: RecourseReport, model: MDP) -> None:
        self._report, self._model = report, model
        self._hindsight = report.decisions[0].offset > 0  # the outcome of the last pair is not observed

    def values(self) -> Table:
        report, table = self._report, Table.grid(padding=(0, 2))
        begins = f"@{report.offset}" + (", clipped to the path" if report.clipped else "")
        table.add_row("  decisions", f"explained from {_ago(report.decisions[0].offset)} on ({begins})")
        table.add_row("    as it happened", self._judged(report.unchanged, report.holds))
        if self._hindsight:
            table.add_row("    optimal", f"{_number(report.optimal)}  as well as possible without hindsight")
            table.add_row("    best", f"{_number(report.best)}  with hindsight, which no policy has")
        else:
            table.add_row("    optimal", f"{_number(report.optimal)}  as well as possible")
        if report.avoidable is not None:
            table.add_row("    avoidable", AVOIDABLE[report.avoidable])
        return table

    def plans(self) -> Iterator[Text]:
        """Yield the lines of every plan.

        If a plan with fewer changes is equally good, the larger plan is shown without its changes.
        """
        fewer: Plan | None = None
        for plan in self._report.plans:
            if plan.changes:
                known = f"  with hindsight (optimal policy: {_number(self._report.optimal)})"
                beside = known if self._hindsight else ""
                line = f"    at most {_count(plan.changes)}: {self._judged(plan.value, plan.holds)}"
                yield Text(line + beside)
                if plan.first is None:
                    yield Text("      no change helps")
                elif fewer is not None and abs(plan.value - fewer.value) <= SAME:
                    yield Text("      no better than fewer")
                else:
                    yield from self._tree(plan.first, 6)
            fewer = plan

    def _tree(self, change: PlannedChange, indent: int) -> Iterator[Text]:
        taken = "" if change.taken is None else f" instead of {self._action(change.taken)}"
        where = f"{_ago(change.offset)}, in {self._state(change.state)}: {self._action(change.proposed)}{taken}"
        chance = "" if change.probability == 1.0 else f"with probability {change.probability:.3g}, "
        yield Text(" " * indent + chance + where)
        for later in change.then:
            yield from self._tree(later, indent + 2)
        if change.further > sum(later.probability for later in change.then) + 1e-12:
            others = ", these included" if change.then else ""
            yield Text(f"{' ' * (indent + 2)}(another change follows with probability {change.further:.3g}{others})")

    def decisions(self) -> Table:
        """Return a table of the decisions.

        Each row names the best other action for the goal if all later decisions stay unchanged. Column `degree`: degree
        of responsibility for the missed goal.
        """
        heads = "  decided at", "state", "taken", "best other", "value", "effect", "degree"
        table = Table(*heads, box=None, pad_edge=True, header_style="dim")
        for decision in self._report.decisions:
            other = self._best_other(decision)
            table.add_row(
                f"  @{decision.offset}",
                self._state(decision.state),
                "-" if decision.taken is None else self._action(decision.taken),
                "-" if other is None else self._action(other.action),
                "-" if other is None else _number(other.value),
                "-" if other is None else f"{other.difference:+.6g}",
                _degree(decision.responsibility),
            )
        return table

    def _best_other(self, decision: Decision) -> Effect | None:
        others = [effect for effect in decision.effects if effect.action != decision.taken]
        sign = 1.0 if self._report.largest else -1.0
        return max(others, key=lambda effect: (round(sign * effect.value, DIGITS), -effect.action), default=None)

    def _judged(self, value: float, holds: bool | None) -> str:  # noqa: FBT001 - a truth
        return _number(value) + {True: ", met", False: ", missed", None: ""}[holds]

    def _action(self, action: int) -> str:
        return action_in_words(self._model.action_names[action] if self._model.action_names else "", action)

    def _state(self, state: int) -> str:
        return self._model.state_names[state] if self._model.state_names else f"state {state}"


def _ago(offset: int) -> str:
    if offset == 0:
        return "the last step"
    return "1 step before the last" if offset == 1 else f"{offset} steps before the last"


def _count(number: int, what: str = "change") -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def _number(value: float) -> str:
    return f"{value:.6g}"


def _degree(degree: float | None) -> str:
    if degree is None:
        return "-"
    return f"{degree:g}" if degree in (0.0, 1.0) else f"1/{round(1.0 / degree)}"
