"""Find out whether one changed decision would have met a missed goal, in worlds without a table of values.

Each decision from the formula's offset on is changed alone, to each other action; all other decisions are unchanged. So
only single changes are examined (docs/semantics/decisions.md, section 14.3), not two changes together, and not the best
decisions at all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_parts
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from monitor.errors import MonitorError
from monitor.evaluation.procedures import DRAWS
from monitor.evaluation.sampled_checker import ERRORS, SampledChecker, estimated
from monitor.exact.avoidable import unexamined
from monitor.exact.verdict import is_missed, resolve
from monitor.logic import Formula
from monitor.logic.syntax import Goal, InterventionRef, Regret, WorldRef
from monitor.sampled.sampler import AnyPath, AnyQuestion
from monitor.types.verdicts import Changes, Recourse, Verdict

ALONE: Final = "a world with numbers has no table of values, so only one other decision at a time is tried"
NONE: Final = ", and none is known to meet the goal"
FIRST_DRAWS: Final = 128
"""Number of samples for each tried decision, numbered from `DRAWS` on. The best decision is sampled again, `DRAWS`
times."""
MOST_TRIED: Final = 256
"""Maximum number of tried changes. Newer decisions are changed first. Each change costs some milliseconds."""
TIE: Final = 1e-12
"""Values that differ by at most this are equal. Among equally good changes, the change of the latest decision is
chosen."""


class ChangedDecision(NamedTuple):
    """One changed decision. `begins`: number of steps after the formula's offset.

    `action`: the action taken instead.
    """

    begins: int
    action: int

    def of(self, goal: Goal, names: Sequence[str]) -> Goal:
        """Return the goal under this change. `names`: names of the actions."""
        taken = InterventionRef("action", names[self.action], 1)
        return with_parts(goal, world=WorldRef(taken, None, goal.world.offset))


def with_one_decision(
    verdict: Verdict,
    formula: Formula,
    checker: SampledChecker,
    path: AnyPath,
    action_names: Sequence[str],
    *,
    terminated: bool = False,
    acted: Sequence[str] = (),
) -> Verdict:
    """Return the verdict; if a goal of `regret` is missed, add the one decision whose change meets the goal.

    Changed decisions are tried with the same noise samples as the verdict. If the verdict needed no noise,
    decisions that need noise are not tried.
    """
    if not (isinstance(formula, Regret) and is_missed(verdict)):
        return verdict
    ask = partial(checker.question, path=path, drawn=verdict.drawn, terminated=terminated, acted=acted)
    steps = path[resolve(formula.world.offset, len(path))[1] :]
    search = _Search(formula, ask, steps, action_names, drawn=verdict.drawn is not None)
    try:
        found = search.best()
    except MonitorError as error:  # a world or a policy fails
        return unexamined(verdict, str(error))
    changes = None if found is None else _described(found, steps, action_names)
    cut = search.count() > MOST_TRIED
    reason = f"{ALONE}{f' (the newest {MOST_TRIED})' if cut else ''}{'' if changes else NONE}"
    return replace(verdict, recourse=Recourse(changes=changes, reason=reason))


class _Found(NamedTuple):
    change: ChangedDecision
    value: float
    samples: int = 0


class _Search:
    """The decisions on the path of a missed goal.

    `steps`: the pairs of this path from the formula's offset on. `drawn`: whether the verdict needed samples.
    """

    def __init__(
        self, formula: Regret, ask: partial[AnyQuestion], steps: AnyPath, names: Sequence[str], *, drawn: bool
    ) -> None:
        self._goal = with_parts(formula.goal, world=formula.world)
        self._ask, self._steps, self._names, self._drawn = ask, steps, names, drawn

    def best(self) -> _Found | None:
        """Return the change with the best value if this value is known to meet the goal, else None."""
        test = self._goal.test
        assert test is not None
        sign = 1.0 if test.comparison in (">=", ">") else -1.0
        best: _Found | None = None
        known: _Found | None = None  # the best change that needs no samples
        for change in islice(self._changes(), MOST_TRIED):
            found, _ = self._valued(change, range(DRAWS, DRAWS + FIRST_DRAWS))
            if found is None:
                continue
            if best is None or sign * (found.value - best.value) > TIE:
                best = found
            if not found.samples and (known is None or sign * (found.value - known.value) > TIE):
                known = found
        if best is not None and best.samples:
            # The best of many estimates is too good on average, so this value is estimated again with other samples.
            again, error = self._valued(best.change, range(DRAWS))
            assert again is not None
            if test.holds(again.value - sign * ERRORS * error):
                return again
        return known if known is not None and test.holds(known.value) else None

    def count(self) -> int:
        """Return the number of changes. A decision not yet taken can be changed to each action."""
        return sum(len(self._names) - (taken is not None) for _, taken, *_ in self._steps)

    def _changes(self) -> Iterator[ChangedDecision]:
        for begins in reversed(range(len(self._steps))):
            taken = self._steps[begins][1]
            yield from (ChangedDecision(begins, action) for action in range(len(self._names)) if action != taken)

    def _valued(self, change: ChangedDecision, particles: range) -> tuple[_Found | None, float]:
        """Return the value under a change and its standard error; None if it needs samples and the verdict did not."""
        question = self._ask(change.of(self._goal, self._names), begins=change.begins)
        if question.certain is not None:
            return _Found(change, question.certain), 0.0
        if not self._drawn:
            return None, 0.0
        value, error = estimated(question, particles)
        return _Found(change, value, len(particles)), error or 0.0


def _described(found: _Found, steps: AnyPath, names: Sequence[str]) -> Changes:
    state, taken = steps[found.change.begins][:2]
    return Changes(
        count=1,
        value=found.value,
        offset=len(steps) - 1 - found.change.begins,
        state=state,
        taken=taken,
        proposed=found.change.action,
        taken_name="" if taken is None else names[taken],
        proposed_name=names[found.change.action],
        samples=found.samples,
    )
