"""Test of a Gymnasium environment against the table `P[s][a]` that it publishes.

The model is built from the table. An option such as Taxi's `fickle_passenger` changes the environment but not its
table. Values computed on the model would then be those of another environment. The environment is therefore run for
several thousand steps and compared with the table. Each step must be an entry of the table (successor, `terminated` and
reward), and the frequencies of the entries are tested at level `ALPHA` (`monitor.statistics.model_betting`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from monitor.statistics.model_betting import ModelTest

STEPS: Final = 10_000
"""Number of steps. All steps take a third of a second in the environments that come with Gymnasium."""

ALPHA: Final = 1e-6
"""Probability of a false report: the environment is reported, but follows the frequencies of its table."""

Entry = tuple[int, bool, float]
"""Successor, terminated, reward."""


@dataclass(frozen=True)
class Conformance:
    """Result of comparing an environment with its table.

    Attributes:
        steps: number of steps run.
        departures: kind of deviation -> number of steps.
        example: sentence on the first deviating step; empty if there was none.
        log10_e: evidence against the frequencies, log10 of an e-value. It is meaningful only if no step deviated,
            because deviating steps are left out.
        doubted: True if the frequencies are rejected: the e-value reached 1 / `ALPHA`.
        failure: why the environment could not be run to the end; empty if it could.
    """

    steps: int
    departures: Mapping[str, int]
    example: str
    log10_e: float
    doubted: bool
    failure: str = ""

    @property
    def problem(self) -> str:
        """The mismatch and its consequence in one sentence; empty if the environment follows its table."""
        if self.departures:
            counts = [f"{count:,} of {self.steps:,} steps {what}" for what, count in self.departures.items()]
            found = f"{'; '.join(counts)} ({self.example})"
        elif self.doubted:
            found = f"frequencies over {self.steps:,} steps contradict it (e-value 1e{self.log10_e:.1f})"
        elif self.failure:
            return f"it is not known whether the environment follows its own P: {self.failure}"
        else:
            return ""
        meaning = "values computed on this model are not those of the environment"
        return f"the environment does not follow its own P: {found}; {meaning}"


class _Step(NamedTuple):
    """One step of the environment."""

    state: int
    action: int
    entry: Entry


def conformance(environment: Any, *, steps: int = STEPS, seed: int = 0) -> Conformance:  # noqa: ANN401 - optional
    """Run an environment with random actions and compare each step with its table.

    Args:
        environment: environment with discrete spaces and a table `P[s][a] = [(probability, successor, reward,
            terminated), ...]`. Only actions with entries are taken.
        steps: number of steps, over as many episodes as needed.
        seed: seed of the environment and of the actions.
    """
    table = _FrequencyTable(environment)
    departures: dict[str, int] = {}
    example = failure = ""
    count = 0
    try:
        for count, step in enumerate(_steps(environment, table, steps, seed), start=1):
            if what := table.compare(step):
                departures[what] = departures.get(what, 0) + 1
                example = example or f"step {count}: {_words(step)}"
    except Exception as error:  # noqa: BLE001 - environments raise any exception
        failure = f"it stopped after {count:,} steps ({type(error).__name__}: {error})"
    return Conformance(count, departures, example, table.test.log10_e, table.test.rejected, failure)


class _FrequencyTable:
    """The table of an environment, and the test of its frequencies.

    Row s * A + a has its entries in ascending order.
    """

    def __init__(self, environment: Any) -> None:  # noqa: ANN401 - Gymnasium is optional
        self.actions = int(environment.action_space.n)
        listed = environment.unwrapped.P
        self._entries: list[list[Entry]] = []
        starts, places, chances = [0], list[int](), list[float]()
        for state in range(int(environment.observation_space.n)):
            for action in range(self.actions):
                row = _merged(listed[state][action])
                self._entries.append(list(row))
                places += range(len(row))
                chances += row.values()
                starts.append(len(places))
        self.test = ModelTest(starts, places, chances, alpha=ALPHA)

    def available(self, state: int) -> list[int]:
        """Return the actions with entries in a state."""
        first = state * self.actions
        return [action for action in range(self.actions) if self._entries[first + action]]

    def compare(self, step: _Step) -> str:
        """Return how a step deviates from the table, or "" if it does not. A possible step is counted."""
        row = step.state * self.actions + step.action
        successor, terminated, reward = step.entry
        there = [(place, entry) for place, entry in enumerate(self._entries[row]) if entry[0] == successor]
        if not there:
            return "led where P has no transition"
        there = [(place, entry) for place, entry in there if entry[1] == terminated]
        if not there:
            return f"{'ended' if terminated else 'did not end'} the episode, against P"
        place = next((at for at, entry in there if math.isclose(entry[2], reward, rel_tol=1e-6, abs_tol=1e-9)), None)
        if place is None:
            return "earned another reward than in P"
        self.test.step(row, place)
        return ""


def _merged(listed: Any) -> dict[Entry, float]:  # noqa: ANN401 - whatever the environment holds
    """Return the entries of a row in ascending order, with their probabilities. Equal entries are merged."""
    row: dict[Entry, float] = {}
    for probability, successor, reward, terminated in listed:
        if probability > 0:
            entry = int(successor), bool(terminated), float(reward)
            row[entry] = row.get(entry, 0.0) + float(probability)
    return dict(sorted(row.items()))


def _steps(environment: Any, table: _FrequencyTable, steps: int, seed: int) -> Iterator[_Step]:  # noqa: ANN401 - optional
    rng = np.random.default_rng(seed)
    state = int(environment.reset(seed=seed)[0])
    for _ in range(steps):
        actions = table.available(state)
        action = actions[int(rng.integers(len(actions)))]
        successor, reward, terminated, truncated, _ = environment.step(action)
        yield _Step(state, action, (int(successor), bool(terminated), float(reward)))
        state = int(environment.reset()[0]) if terminated or truncated else int(successor)


def _words(step: _Step) -> str:
    successor, terminated, reward = step.entry
    end = ", terminated" if terminated else ""
    return f"state {step.state}, action {step.action} -> state {successor}, reward {reward:g}{end}"
