"""One formula to monitor: checked at start, then answered whenever it is due, by the engine that fits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, get_args

from monitor.engine import NO_BOUNDS, NOT_EXACT, Engines, on_stream
from monitor.errors import ConfigError, LimitError, MonitorError
from monitor.exact import IncrementalCheck, validate
from monitor.logic import Formula, parse
from monitor.logic.syntax import Regret
from monitor.logic.traversal import largest_offset
from monitor.runtime.forecasts import Target, target_of
from monitor.stream import Session
from monitor.types import CausalModel, Engine, FormulaSpec, Outcome, Step, Verdict

__all__ = ["Query", "QueryEvaluator", "prepare"]

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Query:
    """A formula to monitor, parsed and checked.

    `sampled`: it is never answered exactly; `why`: the reason, if its `engine` is not `sampled`. `target`: which of its
    forecasts is followed; None: none is.
    """

    spec: FormulaSpec
    formula: Formula
    sampled: bool = False
    why: str = ""
    target: Target | None = field(default=None, compare=False)

    @cached_property
    def lookback(self) -> int:
        """How many steps it looks back: its largest |offset|."""
        return largest_offset(self.formula)


@dataclass(slots=True)
class QueryEvaluator:
    """Evaluator of one query for one agent; holds what the next answer depends on beside the path.

    `check` only saves time: rebuilt from the held path it gives the same answers to the bit. `begun`, `pushed`: those
    of the path when `check` last advanced. `tests`: sampled answers so far, over all episodes. Each spends a part of
    the stream's alpha, so this is reset only when the stream ends: the agent is forgotten or the formula changes.
    """

    tests: int = 0
    check: IncrementalCheck | None = None
    begun: int = -1
    pushed: int = 0

    def verdict(self, query: Query, engines: Engines, session: Session, step: Step) -> Verdict:
        """Answer on the session's path, whose last pair is `step`; undecided, with a reason, if impossible."""
        if query.sampled:
            return self._sampled(query, engines, session, step, query.why)
        spec, path = query.spec, session.path
        added = path.pushed - self.pushed if path.begun == self.begun else None
        self.begun, self.pushed = path.begun, path.pushed
        try:
            if self.check is None:
                window = session.settings.window
                self.check = engines.checker.incremental_check(
                    query.formula, spec.causal_model, spec.text, window=window
                )
            return self.check.verdict(path.held, added, terminated=path.terminated, start_observed=path.start_observed)
        except MonitorError as error:  # too large to answer exactly here
            self.check = None  # how far it advanced is unknown
            self.begun = -1
            if isinstance(error, LimitError) and spec.engine == "auto" and spec.causal_model == "gumbel":
                return self._sampled(query, engines, session, step, NOT_EXACT + str(error))
            return _undecided(query, "exact", str(error))

    def _sampled(self, query: Query, engines: Engines, session: Session, step: Step, why: str) -> Verdict:
        """Answer by sampling: one more test of this formula on this stream."""
        spec, path = query.spec, session.path
        self.tests += 1
        drawn = on_stream(
            engines.sampling,
            spec.alarm,
            stream=(session.agent, step.episode, spec.name),
            seq=step.seq,
            first=step.seq - (len(path.held) - 1),
            test=self.tests,
        )
        try:
            return engines.sampled_checker.verdict(
                query.formula,
                path.pairs,
                drawn,
                text=spec.text,
                terminated=path.terminated,
                start_observed=path.start_observed,
                why=why,
            )
        except MonitorError as error:
            return _undecided(query, "sampled", f"{why}; {error}" if why else str(error))


def _undecided(query: Query, method: Literal["exact", "sampled"], reason: str) -> Verdict:
    """Return a verdict that changes no alarm and gives the reason."""
    outcome: Outcome | None = "undecided" if isinstance(query.formula, Regret) else None
    return Verdict(query.spec.text, method, query.spec.causal_model, (), outcome=outcome, reason=reason)


# ---- at start ----


def prepare(formulas: Sequence[FormulaSpec | str], engines: Engines, *, window: int) -> list[Query]:
    """Parse and check the formulas to monitor; a bare text gets the name `formula_<n>`.

    `window`: pairs a path holds at most.

    Raises:
        FormulaError, ConfigError, LimitError: before the first message, never after it.
    """
    specs = [FormulaSpec(f"formula_{n}", spec) if isinstance(spec, str) else spec for n, spec in enumerate(formulas)]
    queries = [_query(spec, engines, window) for spec in specs]
    _check_names([spec.name for spec in specs])
    return queries


def _query(spec: FormulaSpec, engines: Engines, window: int) -> Query:
    formula, checker = parse(spec.text), engines.checker
    _check_spec(spec, formula)
    validate(formula, checker.model, checker.policies, spec.text, checker.models)
    lookback = largest_offset(formula)
    if lookback >= window:
        problem = f"formula {spec.name!r} looks {lookback} steps back, the path holds {window}"
        raise ConfigError(f"{problem}; raise path.window or lower the offset")
    sampled, why = engines.prepare(formula, spec, window=window)
    target = None if sampled else target_of(formula, spec.engine, checker.model)
    return Query(spec, formula, sampled, why, target)


def _check_names(names: Sequence[str]) -> None:
    """Refuse a name given twice: answers and alarms are kept by name."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two formulas are called {name!r}; give each a name of its own")


def _check_spec(spec: FormulaSpec, formula: Formula) -> None:
    """Check all settings of a formula but its text; those of a configuration file are checked here too."""
    alarm, where = spec.alarm, f"formula {spec.name!r}"
    if not NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}: a name is 1 to 64 of the characters A-Z a-z 0-9 _ . -, for it becomes a topic")
    if not (isinstance(spec.every, int | float) and 0 < spec.every < math.inf):  # another number is in no unit
        raise ConfigError(f"{where}: every is {spec.every}; it counts steps (a whole number) or seconds, above 0")
    if not all(isinstance(count, int) and count >= 1 for count in (alarm.for_, alarm.keep)):
        raise ConfigError(f"{where}: for and keep count verdicts, from 1 on")
    if not 0 <= alarm.step < math.inf:
        raise ConfigError(f"{where}: step is {alarm.step}; it is a distance between two values, from 0 on")
    if spec.causal_model not in get_args(CausalModel):
        raise ConfigError(f"{where}: causal model {spec.causal_model!r}; use {', '.join(get_args(CausalModel))}")
    if spec.engine not in get_args(Engine):
        raise ConfigError(f"{where}: engine {spec.engine!r} does not exist; use {', '.join(get_args(Engine))}")
    if spec.engine == "sampled" and spec.causal_model != "gumbel":
        raise ConfigError(f"{where}: causal model {spec.causal_model!r}: {NO_BOUNDS}; use engine exact, or gumbel")
    fitting = ("regret", "unavoidable") if isinstance(formula, Regret) else ("fails", "holds")
    if alarm.when is not None and alarm.when not in fitting:
        raise ConfigError(f"{where}: alarm when {alarm.when!r} never happens to it; use {' or '.join(fitting)}")
