"""One formula to monitor: checked at the start, then evaluated by the appropriate engine whenever it is due."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal, Protocol, get_args

from msgspec import structs

from monitor.alarm.figures import change_of, low_is_worse, threshold_of
from monitor.alarm.machine import PLAIN_TRIGGERS, REGRET_TRIGGERS
from monitor.errors import ConfigError, LimitError, MonitorError
from monitor.evaluation import NO_BOUNDS, NOT_EXACT, Engines, HiddenEngines, TableEngines, WorldEngines, on_stream
from monitor.exact.best.values import MAX_PRODUCTS
from monitor.exact.verdict import IncrementalCheck
from monitor.hidden.hidden_checker import HiddenCheck
from monitor.logic import Formula, parse
from monitor.logic.direction import FormulaUse, reversed_goals
from monitor.logic.printer import print_change
from monitor.logic.syntax import Goal, Probability, Regret
from monitor.logic.traversal import goals, handover_goal, largest_offset, nested_goals
from monitor.runtime.forecasts import FollowedForecast, ForecastTarget, followed_forecast, target_of
from monitor.runtime.held_path import held_path
from monitor.runtime.shared_verdicts import SharedVerdicts
from monitor.runtime.takeovers import UNREPORTED, TakeoverGoal, takeover_goal
from monitor.stream.session import Session
from monitor.types.alerts import Threshold
from monitor.types.specs import AlarmOnlyIf, BandsWhen, Engine, FormulaSpec, RecourseWhen, RequestedModel
from monitor.types.stream_events import Step
from monitor.types.verdicts import Drawn, Outcome, Verdict

NOT_ROBUST: Final = "robust needs bounds over causal models; add causal_model: any (or stable) to the formula"
NEVER_ROBUST: Final = (
    "quantities are nested, so on a learned model no answer is known to be robust; leave only_if out, or write a "
    "formula without nested quantities"
)
BACKWARDS: Final = (
    "by default an alarm fires when its formula is false, here while it is not too late to hand over; write when: "
    "holds, or the comparison with <"
)
OWN: Final = "a world's own step is its causal model; leave it out"
ONLY_DRAWN: Final = "in a world with numbers noise is drawn only where it must be; leave it out, or use exact"
MANY: Final = 10_000_000
"""`query_notes` mentions a formula that needs more multiplications than this at each step (about 10 ms)."""
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Vocabulary(Protocol):
    """The names that a formula may use. `learned`: whether a model is learned and has a guaranteed band."""

    learned: bool

    def validate(self, formula: Formula, text: str) -> None:
        """Raise FormulaError at the first name that does not exist."""
        ...


@dataclass(frozen=True)
class Query:
    """A formula to monitor, parsed and checked.

    `drawn_verdicts`: whether its verdicts come from the engines' `drawn_verdict` and not from an incremental check.
    `drawn_verdict` draws samples; in a world with numbers it does so only where it must. `why`: the reason for drawn
    verdicts, unless it is the setting `engine: sampled`. `target`: the forecast that is followed; None if none is.
    `takeover_goal`: the goal that judges takeovers; None if there is none, for the reason `no_takeovers`. `products`:
    number of multiplications per step to find the best decisions for the goal (`optimal`, `best`). `shared`: the
    query's exact verdicts on one model, shared by all agents.
    """

    spec: FormulaSpec
    formula: Formula
    drawn_verdicts: bool = False
    why: str = ""
    target: ForecastTarget | None = field(default=None, compare=False)
    takeover_goal: TakeoverGoal | None = field(default=None, compare=False)
    no_takeovers: str = field(default="", compare=False)
    products: int = field(default=0, compare=False)
    shared: SharedVerdicts = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Begin without shared verdicts, so that a query that is prepared for other engines loses its verdicts."""
        object.__setattr__(self, "shared", SharedVerdicts(self.spec, self.formula))

    @cached_property
    def lookback(self) -> int:
        """Largest |offset| of the formula, in steps."""
        return largest_offset(self.formula)

    @cached_property
    def threshold(self) -> Threshold | None:
        """The threshold with which the formula's value is compared; None for `=?`, or if it has several goals."""
        return threshold_of(self.formula)

    @cached_property
    def low_is_worse(self) -> bool:
        """True if lower values are worse, False if higher values are worse."""
        return low_is_worse(self.formula, self.spec.alarm)

    @cached_property
    def probability(self) -> bool:
        """True if the formula's values are probabilities: no rewards, and no differences of probabilities."""
        asked = (goal for goal, _, _ in goals(self.formula))
        return all(isinstance(goal.measure, Probability) and goal.world.baseline is None for goal in asked)

    @cached_property
    def alternative(self) -> str | None:
        """The intervention that a regret formula compares with nominal, as text; None for every other formula."""
        change = change_of(self.formula)
        return None if change is None else print_change(change)

    @cached_property
    def followed(self) -> FollowedForecast | str:
        """The followed forecast, or the reason why none is followed."""
        return followed_forecast(self.formula)


class QueryEvaluator:
    """Evaluator of one query for one agent. The next verdict depends only on the path and on the state held here.

    `check` (`hidden` for models with hidden states) only saves time: a check that is rebuilt from the held path gives
    bit-identical verdicts. `begun`, `pushed`: the attributes of the path when `check` last advanced. `tests`: number of
    sampled verdicts, over all episodes. Each sampled verdict spends a part of the stream's alpha, so `tests` is reset
    only when the stream ends. A stream ends when the agent is forgotten or the formula changes.
    """

    def __init__(self, tests: int = 0) -> None:
        self.tests = tests
        self.check: IncrementalCheck | None = None
        self.hidden: HiddenCheck | None = None
        self.begun = -1
        self.pushed = 0

    def verdict(self, query: Query, engines: Engines, session: Session, step: Step) -> Verdict:
        """Return the verdict on the session's path, whose last pair is `step`.

        If evaluation fails, the verdict is undecided with a reason.

        Other agents on the same path can use an exact verdict from now on (`SharedVerdicts`). While this agent uses a
        shared verdict, `check` does not advance; before `check` is used again, it catches up with the path.
        """
        if query.drawn_verdicts:
            return self._sampled(query, engines, session, step, query.why)
        assert not isinstance(engines, WorldEngines), "worlds with numbers always have drawn verdicts"
        spec, path = query.spec, session.path
        added = path.pushed - self.pushed if path.begun == self.begun else None
        self.begun, self.pushed = path.begun, path.pushed
        try:
            verdict = self._exact(query, engines, session, added)
        except MonitorError as error:  # too large to evaluate exactly, or the policy that acted is unknown
            self.check = self.hidden = None  # it is unknown how far the check advanced
            self.begun = -1
            exact_only = isinstance(engines, HiddenEngines) or spec.engine != "auto" or spec.causal_model != "gumbel"
            if isinstance(error, LimitError) and not exact_only:
                return self._sampled(query, engines, session, step, NOT_EXACT + str(error))
            return _undecided(query, "exact", str(error))
        if isinstance(engines, TableEngines):  # with hidden states, the verdict depends on more than the path's pairs
            shared = query.shared
            shared.keep(path, verdict)
        return verdict

    def _exact(
        self, query: Query, engines: TableEngines | HiddenEngines, session: Session, added: int | None
    ) -> Verdict:
        spec, path = query.spec, session.path
        if isinstance(engines, HiddenEngines):
            if self.hidden is None:
                self.hidden = engines.checker.check(query.formula, spec.text, spec.causal_model)
            how = {"terminated": path.terminated, "start_observed": path.start_observed}
            return self.hidden.verdict(path.held, path.inputs, added, acted=path.acted, **how)
        if self.check is None:
            window = session.settings.window
            self.check = engines.checker.incremental_check(query.formula, spec.causal_model, spec.text, window=window)
        return self.check.verdict(path.held, added, path.terminated, path.start_observed, path.acted)

    def with_bands(self, verdict: Verdict, query: Query, engines: Engines, session: Session, step: Step) -> Verdict:
        """Return a verdict on the session's path, with its credible band if the model is learned.

        The band uses the noise of the verdict's samples, or the noise that a sampled verdict would have used.
        """
        drawn = verdict.drawn or self._drawn(query, engines, session, step)
        return engines.with_bands(verdict, query.formula, held_path(session.path), drawn)

    @staticmethod
    def with_recourse(verdict: Verdict, query: Query, engines: Engines, session: Session) -> Verdict:
        """Return a verdict on the session's path. If its goal is missed, add whether the goal could have been met."""
        path = session.path
        known = query.shared.peek(path) if verdict.method == "exact" else None
        if known is not None and known.recourse is not None:
            return structs.replace(verdict, recourse=known.recourse)
        examined = engines.with_recourse(verdict, query.formula, held_path(path))
        if known is not None:
            known.recourse = examined.recourse
        return examined

    def _sampled(self, query: Query, engines: Engines, session: Session, step: Step, why: str) -> Verdict:
        """Return a sampled verdict, which is one more test of this formula on this stream."""
        assert not isinstance(engines, HiddenEngines), "where states are hidden nothing is sampled"
        spec, path = query.spec, session.path
        drawn = self._drawn(query, engines, session, step)
        try:
            verdict = engines.drawn_verdict(query.formula, spec, held_path(path), drawn, why)
        except MonitorError as error:
            self.tests += 1
            return _undecided(query, "sampled", f"{why}; {error}" if why else str(error))
        if verdict.method == "sampled":
            self.tests += 1
        return verdict

    def _drawn(self, query: Query, engines: Engines, session: Session, step: Step) -> Drawn:
        """Return the seed of the noise and the error rate of the next test."""
        return on_stream(
            engines.sampling,
            query.spec.alarm,
            stream=(session.agent, step.episode, query.spec.name),
            seq=step.seq,
            first=step.seq - (len(session.path.held) - 1),
            test=self.tests + 1,
        )


def _undecided(query: Query, method: Literal["exact", "sampled"], reason: str) -> Verdict:
    """Return an undecided verdict, which changes no alarm, with the reason."""
    outcome: Outcome | None = "undecided" if isinstance(query.formula, Regret) else None
    return Verdict(query.spec.text, method, query.spec.causal_model, (), outcome=outcome, reason=reason)


# ---- at start ----


class SpecError(ConfigError):
    """A setting of a formula to monitor is invalid. `key`: key of the setting, inside the formula's section."""

    def __init__(self, name: str, key: tuple[str, ...], problem: str) -> None:
        super().__init__(f"formula {name!r}, {'.'.join(key)}: {problem}")
        self.key = key
        self.problem = problem


def read_query(spec: FormulaSpec, vocabulary: Vocabulary | None, *, window: int) -> Query:
    """Parse and check a formula to monitor.

    Args:
        spec: the formula and its alarm.
        vocabulary: the names that it may use; None if they could not be read, so that only the syntax is checked.
        window: largest number of pairs of a path.

    Raises:
        FormulaError: the formula's text is wrong, or uses a name that does not exist.
        SpecError: another setting in `spec` is wrong.
    """
    query = Query(spec, parse(spec.text))
    if vocabulary is not None:
        vocabulary.validate(query.formula, spec.text)
        if vocabulary.learned:
            _check_guarantee(query)
    for key, problem in _problems(query, window):
        raise SpecError(spec.name, key, problem)
    return query


def prepare(
    formulas: Sequence[Query | FormulaSpec | str],
    engines: Engines,
    *,
    window: int,
    known: Collection[str] = (),
) -> list[Query]:
    """Check the formulas to monitor, build their tables, and return them. A bare text gets the name `formula_<n>`.

    `known`: policies that an agent can report; only takeovers by these policies are judged. A `Query` is not checked
    again, because `read_query` made it for the same vocabulary and `window`.

    Raises:
        FormulaError, ConfigError, LimitError: a formula cannot be used. Such errors come only from here, never during
            monitoring.
    """
    specs = [FormulaSpec(f"formula_{n}", spec) if isinstance(spec, str) else spec for n, spec in enumerate(formulas)]
    queries = [_prepared(spec, engines, window, known) for spec in specs]
    _check_names([query.spec.name for query in queries])
    return queries


def _prepared(spec: Query | FormulaSpec, engines: Engines, window: int, known: Collection[str]) -> Query:
    if isinstance(engines, WorldEngines) and isinstance(spec, FormulaSpec) and spec.causal_model == "world":
        spec = structs.replace(spec, causal_model="gumbel")  # a stored spec has the prepared value
    query = spec if isinstance(spec, Query) else read_query(spec, engines.names, window=window)
    drawn, why = engines.prepare(query.formula, query.spec, window=window)
    if isinstance(engines, WorldEngines):
        if query.spec.causal_model != "gumbel":
            raise SpecError(query.spec.name, ("causal_model",), OWN)
        if query.spec.engine == "sampled":
            raise SpecError(query.spec.name, ("engine",), ONLY_DRAWN)
        query = replace(query, spec=structs.replace(query.spec, causal_model="world"))
    table = engines if isinstance(engines, TableEngines) else None
    by = _takeover_goal(query, engines, known, sampled=drawn and table is not None)
    return replace(
        query,
        drawn_verdicts=drawn,
        why=why,
        target=target_of(query.formula, engines),
        takeover_goal=None if isinstance(by, str) else by,
        no_takeovers=by if isinstance(by, str) else "",
        products=0 if drawn or table is None else table.checker.products(query.formula, window),
    )


def query_notes(queries: Sequence[Query]) -> list[str]:
    """Return notes for the user on formulas whose comparison looks reversed, or whose decisions are expensive."""
    watched = (FormulaUse(query.spec.name, query.formula, query.spec.alarm.fires_while) for query in queries)
    notes = [f"{name}: {note}" for name, note in reversed_goals(watched)]
    return notes + [
        f"{query.spec.name}: decisions made for its goal cost up to {query.products:,} multiplications at each step "
        f"(limit {MAX_PRODUCTS:,})"
        for query in queries
        if query.products > MANY
    ]


def _takeover_goal(query: Query, engines: Engines, known: Collection[str], *, sampled: bool) -> TakeoverGoal | str:
    """Build the tables of the goal that judges takeovers, and return it, or the reason why there is none."""
    by = takeover_goal(query.formula, sampled=sampled)
    if isinstance(by, str):
        return by
    if by.policy not in known:
        return UNREPORTED
    try:
        engines.prepare_takeover(by.goal)
    except LimitError as error:
        return str(error)
    return by


def _check_names(names: Sequence[str]) -> None:
    """Raise ConfigError if two formulas have the same name, because verdicts and alarms are identified by name."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two formulas are called {name!r}; give each a name of its own")


def _check_guarantee(query: Query) -> None:
    """Raise SpecError if an alarm can never fire, because `only_if` needs a guaranteed band that does not exist."""
    spec = query.spec
    if spec.alarm.only_if is None or spec.causal_model != "any":
        return
    measures = [goal.measure for goal, _, _ in goals(query.formula)]
    decides = any(change.decides for _, changes, _ in goals(query.formula) for change in changes)
    if decides or any(isinstance(measure, Probability) and any(nested_goals(measure.path)) for measure in measures):
        raise SpecError(spec.name, ("alarm", "only_if"), NEVER_ROBUST)


def _alarms_in_time(formula: Formula) -> bool:
    """Return whether an alarm on a false formula would fire while a handover still helps."""
    if handover_goal(formula) is None:
        return False
    return isinstance(formula, Goal) and formula.test is not None and formula.test.comparison in (">=", ">")


def _problems(query: Query, window: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (key, problem) for each wrong setting. Mistakes in the formula's text are found elsewhere."""
    spec, alarm = query.spec, query.spec.alarm
    if not NAME.fullmatch(spec.name):
        yield ("name",), "must be 1 to 64 of the characters A-Z a-z 0-9 _ . -, because it becomes a topic"
    if not (isinstance(spec.every, int | float) and 0 < spec.every < math.inf):  # the type gives the unit
        yield ("every",), f"is {spec.every}; it must be a number of steps (int) or of seconds (float), above 0"
    if not all(isinstance(count, int) and count >= 1 for count in (alarm.for_, alarm.keep)):
        yield ("alarm",), "for and keep are numbers of verdicts, 1 or more"
    if not 0 <= alarm.step < math.inf:
        yield ("alarm", "step"), f"is {alarm.step}; it must be a difference between two values, 0 or more"
    for key, words in (
        ("causal_model", get_args(RequestedModel)),
        ("engine", get_args(Engine)),
        ("bands", get_args(BandsWhen)),
        ("recourse", get_args(RecourseWhen)),
    ):
        if (word := getattr(spec, key)) not in words:
            yield (key,), f"{word!r} does not exist; use {', '.join(words)}"
    if alarm.only_if not in (None, *get_args(AlarmOnlyIf)):
        fitting = " or ".join(get_args(AlarmOnlyIf))
        yield ("alarm", "only_if"), f"{alarm.only_if!r} does not exist; use {fitting}, or leave it out"
    if alarm.only_if == "robust" and spec.causal_model == "gumbel":
        yield ("alarm", "only_if"), NOT_ROBUST
    if spec.engine == "sampled" and spec.causal_model != "gumbel":
        yield ("causal_model",), f"{NO_BOUNDS}; use engine: exact, or causal_model: gumbel"
    triggers = REGRET_TRIGGERS if isinstance(query.formula, Regret) else PLAIN_TRIGGERS
    if alarm.when is not None and alarm.when not in triggers:
        yield ("alarm", "when"), f"{alarm.when!r} never happens to this formula; use {' or '.join(triggers)}"
    if alarm.when is None and _alarms_in_time(query.formula):
        yield ("alarm", "when"), BACKWARDS
    if query.lookback >= window:
        problem = f"offset {query.lookback} does not fit the path.window of {window} steps"
        yield ("formula",), f"{problem}; make the window larger than the offset"
