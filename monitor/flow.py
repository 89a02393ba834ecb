"""The whole route, from an observation to notices. The file to read first.

    bytes --decode--> Observation --Session--> Step | Break | End --path--> Verdict --alarm--> Notice

`decode` (`monitor.stream`) happens before, publishing (`monitor.sidecar`) after; here is no clock and no I/O. One
`Session` an agent puts its steps in order and keeps the sliding path; its `Watch` asks `Checker` every formula that is
due, on the path so far, and feeds the verdicts to the alarms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from monitor.alarm.message import Identity
from monitor.decide import Checker, largest_offset, tables, validate
from monitor.engine import NO_BOUNDS, Engines
from monitor.errors import ConfigError, InputError
from monitor.logic import Formula, parse
from monitor.logic.syntax import Regret
from monitor.model import MDP, model_sha256
from monitor.policy import PolicyTable
from monitor.question import Question
from monitor.stream import Session
from monitor.stream.decode import validate as validate_observation
from monitor.types import (
    CausalModel,
    Engine,
    Forgotten,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Received,
    Sampling,
    StreamSettings,
)
from monitor.watch import Watch

__all__ = ["Monitor"]

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Monitor:
    """Watches any number of agents that run in the same model.

    Args:
        model: the world of every agent.
        policies: name -> S actions, an S x A matrix, a table, or the path of a manifest; `nominal` is the deployed one.
        formulas: what to watch; a bare text gets the name `formula_<n>`.
        settings: limits and waits of the stream.
        identity: names and digests for alerts; made from the contents where not given.
        models: name -> other dynamics, for formulas that ask about `model:name`.
        sampling: how well answers by sampling must be founded, for formulas whose `engine` is not `exact`.

    Raises:
        FormulaError, ConfigError, PolicyError, LimitError: before the first message, never after it.
    """

    def __init__(
        self,
        model: MDP,
        policies: Mapping[str, object],
        formulas: Sequence[FormulaSpec | str],
        settings: StreamSettings | None = None,
        *,
        identity: Identity | None = None,
        models: Mapping[str, MDP] | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.settings = settings or StreamSettings()
        self._checker = Checker(model, tables(policies, model), models)
        self._engines = Engines(self._checker, sampling or Sampling())
        self._questions = [self._question(spec, n) for n, spec in enumerate(formulas)]
        _check_names([question.spec.name for question in self._questions])
        self._identity = identity or _identity(model, self._checker.policies, models or {})
        self._watches: dict[str, Watch] = {}
        self._ready: dict[str, None] = {}  # agents with something to advance over, in order of arrival
        self._connected = True
        self._swept: float | None = None
        # Silence is looked for once in a quarter of the shortest time that matters, since that visits every agent.
        self._pause = min(self.settings.stale_after, self.settings.forget_after) / 4

    def agents(self) -> tuple[str, ...]:
        """The agents known now."""
        return tuple(self._watches)

    def observe(self, observation: Observation, now: Instant) -> list[Notice]:
        """Take a step over. Never skipped and never raises for what the observation holds: the answer is a notice."""
        watch = self._watches.get(observation.agent)
        if watch is None:
            try:
                watch = self._admit(observation)
            except InputError as error:
                return self.reject(observation.agent, error)
        self._ready[observation.agent] = None
        return watch.session.arrive(observation, now)

    def reject(self, agent: str, error: InputError) -> list[Notice]:
        """Count a message that could not be decoded. If it was a step, its missing seq will show as a gap."""
        return [Received(agent, "rejected", error.reason, error.detail)]

    def evaluate(self, now: Instant, *, latest_only: bool = False) -> list[Notice]:
        """Answer all that is due. `latest_only`: only at each agent's newest step; what is passed over is counted."""
        notices: list[Notice] = []
        ready, self._ready = self._ready, {}
        for agent in ready:
            watch = self._watches[agent]
            notices += watch.session.tick(now)
            notices += watch.evaluate(now, connected=self._connected, latest_only=latest_only)
            if watch.session.deadline is not None:
                self._ready[agent] = None  # a missing step is awaited: look again
        if self._swept is None or now.ticks - self._swept >= self._pause:
            notices += self._sweep(now)
        return notices

    def lost(self, agent: str, now: Instant) -> list[Notice]:
        """The transport dropped messages of this agent; nobody knows which."""
        watch = self._watches.get(agent)
        if watch is None:
            return [Received(agent, "dropped")]
        self._ready[agent] = None
        return [Received(agent, "dropped"), *watch.session.lost(now)]

    def connected(self, up: bool, now: Instant) -> list[Notice]:  # noqa: FBT001 - the one thing there is to say
        """Whether the broker is reached; while it is not, nothing can be seen."""
        self._connected = up
        return [notice for watch in self._watches.values() for notice in watch.look(now, connected=up)]

    def _sweep(self, now: Instant) -> Iterator[Notice]:
        """Notice silence."""
        self._swept = now.ticks
        for agent, watch in list(self._watches.items()):
            if watch.silent(now) > self.settings.forget_after:
                yield from watch.close()
                yield Forgotten(agent)
                del self._watches[agent]
                self._ready.pop(agent, None)
            else:
                yield from watch.look(now, connected=self._connected)

    def _admit(self, observation: Observation) -> Watch:
        """A new agent's watch. InputError if there is no room, or if what it says is no observation."""
        validate_observation(observation)
        agent = observation.agent
        if len(self._watches) >= self.settings.agents:
            detail = f"{self.settings.agents} agents are watched already (limits.agents); {agent} is not"
            raise InputError("too_many_agents", detail)
        nominal = self._checker.policies["nominal"]
        session = Session(agent, self._checker.model, self.settings, nominal=nominal)
        watch = self._watches[agent] = Watch(session, self._questions, self._engines, self._identity)
        return watch

    def _question(self, spec: FormulaSpec | str, n: int) -> Question:
        if isinstance(spec, str):
            spec = FormulaSpec(f"formula_{n}", spec)
        formula = parse(spec.text)
        _check_spec(spec, formula)
        validate(formula, self._checker.model, self._checker.policies, spec.text, self._checker.models)
        reach = largest_offset(formula)
        if reach >= self.settings.window:
            problem = f"formula {spec.name!r} looks {reach} steps back, the path holds {self.settings.window}"
            raise ConfigError(f"{problem}; raise path.window or lower the offset")
        sampled, why = self._engines.prepare(formula, spec)
        return Question(spec, formula, sampled, why)


def _check_names(names: Sequence[str]) -> None:
    """Answers and alarms are kept by name: under a common one they would mix."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two formulas are called {name!r}; give each a name of its own")


def _check_spec(spec: FormulaSpec, formula: Formula) -> None:
    """What a formula to watch must be like, beside its text; a configuration file is held to the same."""
    alarm, where = spec.alarm, f"formula {spec.name!r}"
    if not NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}: a name is 1 to 64 of the characters A-Z a-z 0-9 _ . -, for it becomes a topic")
    if spec.every <= 0:
        raise ConfigError(f"{where}: every is {spec.every}; it counts steps (a whole number) or seconds, above 0")
    if alarm.for_ < 1 or alarm.keep < 1:
        raise ConfigError(f"{where}: for and keep count verdicts, from 1 on")
    if spec.causal_model not in get_args(CausalModel):
        raise ConfigError(f"{where}: causal model {spec.causal_model!r}; use {', '.join(get_args(CausalModel))}")
    if spec.engine not in get_args(Engine):
        raise ConfigError(f"{where}: engine {spec.engine!r} does not exist; use {', '.join(get_args(Engine))}")
    if spec.engine == "sampled" and spec.causal_model != "gumbel":
        raise ConfigError(f"{where}: causal model {spec.causal_model!r}: {NO_BOUNDS}; use engine exact, or gumbel")
    fitting = ("regret", "unavoidable") if isinstance(formula, Regret) else ("fails", "holds")
    if alarm.when is not None and alarm.when not in fitting:
        raise ConfigError(f"{where}: alarm when {alarm.when!r} never happens to it; use {' or '.join(fitting)}")


def _identity(model: MDP, policies: Mapping[str, PolicyTable], models: Mapping[str, MDP]) -> Identity:
    digests = {name: hashlib.sha256(_bytes(table)).hexdigest() for name, table in policies.items()}
    name = Path(model.source).name if model.source.endswith(".npz") else model.source
    others = {name: model_sha256(other) for name, other in models.items()}
    return Identity(model_name=name, model_sha256=model_sha256(model), policies=digests, versions={}, models=others)


def _bytes(table: PolicyTable) -> bytes:
    array = table.probabilities if table.actions is None else table.actions
    assert array is not None
    return array.tobytes()
