"""How often whole verdicts by sampling err: every kind of formula on one path whose exact values are known.

Rows of `python -m tests.statistics.error_rates`, part `verdicts`; in short in `test_verdict_rates.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import monitor
from monitor.evaluation import SampledChecker
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.sampled import Enumerated
from monitor.types import Drawn, Sampling, Verdict
from tests.evaluation.road import PATH, POLICIES, ROAD
from tests.statistics.measured import Row

__all__ = ["rows"]

ALPHA = 0.05
REGION = 0.05
HOME, KEPT, PAID = 'F<=3 "home"', 'G<=3 !"lost"', "C[0,3]"
ONE_WORLD = 8.0
"""Range of a reward over four steps."""


def rows(runs: int) -> Iterator[Row]:
    """All measurements, `runs` verdicts each; no noise of one is that of another."""
    checker = SampledChecker(Enumerated(Checker(ROAD, tables(POLICIES, ROAD)).evaluators), ROAD)
    for number, case in enumerate([*alone(), *combined(), *regrets(), *on_a_stream(), *figures()]):
        yield case.measured(checker, runs, number)


@dataclass(frozen=True)
class Case:
    """One formula asked again and again. `wrong`: which answer is an error (None: an interval without `value`)."""

    what: str
    where: str
    text: str
    wrong: bool | str | None
    limit: float | None
    value: float = 0.0
    stream: bool = False

    def measured(self, checker: SampledChecker, runs: int, number: int) -> Row:
        formula, errors, undecided, samples = parse(self.text), 0, 0, 0
        limit = 2_000 if self.stream else 20_000
        sampling = Sampling(alpha=ALPHA, beta=ALPHA, delta=REGION, error=0.05, error_alpha=ALPHA, limit=limit)
        for run in range(runs):
            drawn = Drawn(sampling, (number << 32) + run, 0, ALPHA, ALPHA, int(self.stream))
            verdict = checker.verdict(formula, PATH, drawn, text=self.text)
            errors += self._errs(verdict)
            undecided += verdict.value is None and verdict.holds is None and verdict.outcome in (None, "undecided")
            samples += max(quantity.samples for quantity in verdict.quantities)
        return Row(self.what, self.where, runs, errors, errors / runs, self.limit, undecided, samples / runs)

    def _errs(self, verdict: Verdict) -> bool:
        if self.wrong is None:
            bounds = verdict.bounds
            assert bounds is not None
            return not bounds[0] - 1e-9 <= self.value <= bounds[1] + 1e-9
        if isinstance(self.wrong, bool):
            return verdict.holds is self.wrong
        return verdict.outcome in self.wrong.split()


def value(question: str) -> float:
    """Return the exact answer to a `=?`."""
    found = monitor.check(question, model=ROAD, path=PATH, policies=POLICIES, engine="exact").value
    assert found is not None
    return found


def alone() -> Iterator[Case]:
    """Single tests at both edges of their regions."""
    asked = [
        ("P", f"bold@2.P{{}} [ {HOME} ]", 1.0),
        ("delta P", f"delta(bold,nominal)@2.P{{}} [ {HOME} ]", 1.0),
        ("delta P, three values", f"delta(bold,nominal)@1.P{{}} [ {KEPT} ]", 1.0),
        ("R", f"bold@2.R{{}} [ {PAID} ]", ONE_WORLD),
        ("delta R", f"delta(bold,nominal)@2.R{{}} [ {PAID} ]", ONE_WORLD),
    ]
    for name, text, wide in asked:
        true = value(text.format("=?"))
        for sign, where in ((-1, "above"), (1, "below")):
            bound = f">={true + sign * REGION * wide!r}"
            yield Case(f"verdict, {name}", where, text.format(bound), wrong=sign > 0, limit=ALPHA)
        above = text.format(f">={true - REGION * wide!r}")
        yield Case(f"interval beside a test, {name}", "at its stop", above, None, ALPHA, true)


def combined() -> Iterator[Case]:
    """Nested combinations whose parts all lie at the edges of their regions."""
    home, kept = value(f"bold@2.P=? [ {HOME} ]"), value(f"P=? [ {KEPT} ]")
    paid = value(f"delta(bold,nominal)@2.R=? [ {PAID} ]")

    def part(text: str, true: float, wide: float, *, holds: bool) -> str:
        return f"({text.format(f'>={true + (-1 if holds else 1) * REGION * wide!r}')})"

    def parts(*, a: bool, b: bool, c: bool) -> tuple[str, str, str]:
        return (
            part(f"bold@2.P{{}} [ {HOME} ]", home, 1.0, holds=a),
            part(f"P{{}} [ {KEPT} ]", kept, 1.0, holds=b),
            part(f"delta(bold,nominal)@2.R{{}} [ {PAID} ]", paid, ONE_WORLD, holds=c),
        )

    for shape, worlds in (
        ("{} & {} & {}", ((True, True, True), (True, False, True))),
        ("!({} | ({} & !{}))", ((False, True, True), (False, True, False))),
        ("({} => {}) & !{}", ((True, True, False), (True, False, False))),
    ):
        for world, holds in zip(worlds, (True, False), strict=True):
            a, b, c = world
            text = shape.format(*parts(a=a, b=b, c=c))
            what, where = f"verdict, {shape.format('a', 'b', 'c')}", "true" if holds else "false"
            yield Case(what, where, text, not holds, ALPHA)


def regrets() -> Iterator[Case]:
    """Nothing to regret, by as little as a test can tell; and a regret by as little."""
    saved = value(f"bold@2.P=? [ {HOME} ]")
    for where, goal, bound, wrong in (
        ("safe by delta", KEPT, value(f"nominal@2.P=? [ {KEPT} ]") - REGION, "regret"),
        ("unavoidable by delta", HOME, saved + REGION, "regret"),
        ("regret by delta", HOME, saved - REGION, "safe unavoidable"),
    ):
        yield Case("regret by sampling", where, f"regret(bold@2, P>={bound!r} [ {goal} ])", wrong, ALPHA)


def on_a_stream() -> Iterator[Case]:
    """The bets of a stream, where the value is the bound itself: each answer is an error, and has its own limit."""
    for name, text in (
        ("P", f"bold@2.P{{}} [ {HOME} ]"),
        ("delta P", f"delta(bold,nominal)@2.P{{}} [ {HOME} ]"),
        ("R", f"bold@2.R{{}} [ {PAID} ]"),
    ):
        true = value(text.format("=?"))
        for wrong in (False, True):
            where = f"at: says {'true' if wrong else 'false'}"
            text_at = text.format(f">={true!r}")
            yield Case(f"verdict on a stream, {name}", where, text_at, wrong, ALPHA, stream=True)


def figures() -> Iterator[Case]:
    """The intervals of `=?`: by a number of samples said in advance, and on a stream until they are narrow enough."""
    for stream in (False, True):
        for name, text in (
            ("P", f"bold@2.P=? [ {HOME} ]"),
            ("delta P", f"delta(bold,nominal)@2.P=? [ {HOME} ]"),
            ("R", f"bold@2.R=? [ {PAID} ]"),
        ):
            where = "on a stream" if stream else "alone"
            yield Case(f"interval of =?, {name}", where, text, None, ALPHA, value(text), stream=stream)
