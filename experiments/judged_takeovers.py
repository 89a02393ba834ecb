"""Whether takeovers on ICU-Sepsis were needed, judged and simulated: `python -m experiments.judged_takeovers`.

The deployed policy acts until regret hands over, for the rest of the episode, to a fallback, as in
`experiments.takeovers`. From each takeover on two patients live side by side: one with the fallback, one with the
deployed policy, and both with the same Gumbel noise at every step. So it is known whether each would have survived the
20 steps of the goal. The monitor sees the first patient's path alone, and says with which probability the second meets
the goal. These probabilities have to be right on average, whatever happened to the first patient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from experiments.output import arguments, plain, write_csv
from experiments.takeovers import EPISODES, FALLBACKS, GOAL, THETA, Clinic, Row, named
from monitor.alarm.takeover import outcome_of
from monitor.evaluation import Held, TableEngines, alone
from monitor.exact import Checker
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.runtime.takeovers import judged_takeover
from monitor.types import FormulaSpec, Sampling

__all__ = ["Judged", "Ward", "judged", "line"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
STEPS: Final = 20
"""Steps of the goal."""
BLOCK: Final = 4_000
"""Episodes simulated side by side; each draws a number for every state and step."""


class Ward:
    """ICU-Sepsis as the two patients see it: logarithms of rows and choices, and the monitor's engines."""

    def __init__(self, clinic: Clinic) -> None:
        self.clinic = clinic
        model = clinic.model
        dense = np.zeros((model.states * model.actions, model.states))
        dense[np.repeat(np.arange(len(dense)), np.diff(model.indptr)), model.successors] = model.probabilities
        self._rows = _log(dense)
        self._choices = {name: _log(clinic.choices(name)) for name in clinic.policies}
        policies = {named(name): table for name, table in clinic.policies.items()}
        self.engines = TableEngines(Checker(model, policies), Sampling())

    @cached_property
    def goal(self) -> Goal:
        """The goal that takeovers are judged by."""
        goal = parse(f"P>={THETA} {GOAL}")
        assert isinstance(goal, Goal)
        return goal

    def acts(self, policy: str, states: Ints, noise: npt.NDArray[np.float32]) -> Ints:
        """Return the actions [n] of a policy, given the noise of the actions [n, A]."""
        chosen: Ints = np.argmax(self._choices[policy][states] + noise, axis=1)
        return chosen

    def leads(self, states: Ints, actions: Ints, noise: npt.NDArray[np.float32]) -> Ints:
        """Return the successors [n], given the noise of the states [n, S]."""
        reached: Ints = np.argmax(self._rows[states * self.clinic.model.actions + actions] + noise, axis=1)
        return reached


@dataclass
class Judged:
    """Judged takeovers, one entry each: what became of both patients, and what the monitor says of the second.

    `met`, `would_meet`: whether the patient with the fallback, and the one with the deployed policy, survives the steps
    of the goal. `values`: the probability of the latter, given the path of the former. `outcomes`: judgements.
    """

    met: list[bool] = field(default_factory=list)
    would_meet: list[bool] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Simulate and judge; write the comparison."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="simulated (default: %(default)s)")
    given = parser.parse_args()
    ward = Ward(Clinic())
    lines = []
    for fallback in FALLBACKS:
        lines.append(line(fallback, given.episodes, judged(ward, fallback, given.episodes, given.seed)))
        print("  ".join(f"{name} {value}" for name, value in lines[-1].items()))
    write_csv(given.out / "takeovers-judged.csv", lines)


def judged(ward: Ward, fallback: str, episodes: int, seed: int) -> Judged:
    """Simulate episodes with the fallback that regret hands over to, and judge each takeover."""
    rng, found = np.random.default_rng(seed), Judged()
    spec = FormulaSpec("regret", f"regret({named(fallback)}@0, P>={THETA} {GOAL})")
    for begin in range(0, episodes, BLOCK):
        states = _taken_over(ward.clinic, fallback, min(BLOCK, episodes - begin), rng)
        paths, met, would_meet = _lives(ward, fallback, states, rng)
        for path in paths:
            ended = len(path) <= STEPS
            acted = (named(fallback),) * len(path)
            held = Held(path, terminated=ended, acted=acted)
            verdict = judged_takeover(ward.goal, ward.engines, spec, held, alone(Sampling()))
            happened, gone_on = verdict.quantities
            assert happened.value == float(met[len(found.values) - len(found.met)]), "what happened is a fact"
            found.values.append(gone_on.value)
            found.outcomes[outcome_of(verdict)] += 1
        found.met += met.tolist()
        found.would_meet += would_meet.tolist()
    return found


def _taken_over(clinic: Clinic, fallback: str, episodes: int, rng: np.random.Generator) -> Ints:
    """Return the states [n] in which regret hands over, of the episodes in which it does."""
    region, chain = clinic.regret(fallback, THETA), clinic.chain("nominal").toarray().cumsum(axis=1)
    states = rng.choice(clinic.model.states, size=episodes, p=clinic.initial)
    going = np.flatnonzero(~(clinic.ended | region)[states])
    while len(going):
        limits = chain[states[going]]
        states[going] = (rng.random(len(going))[:, None] * limits[:, -1:] >= limits).sum(axis=1)
        going = going[~(clinic.ended | region)[states[going]]]
    taken: Ints = states[~clinic.ended[states]]
    return taken


def _lives(
    ward: Ward, fallback: str, states: Ints, rng: np.random.Generator
) -> tuple[list[list[tuple[int, int]]], Bools, Bools]:
    """Return the observed paths from the takeovers on, and whether the first and the second patient survive the steps.

    A path ends with the step at which the episode does, or when the goal's horizon has passed.
    """
    model, clinic = ward.clinic.model, ward.clinic
    both = np.stack([states, states])
    paths: list[list[tuple[int, int]]] = [[] for _ in states]
    for step in range(STEPS + 1):
        choice = _gumbel(rng, len(states), model.actions)
        actions = [ward.acts(name, at, choice) for name, at in zip((fallback, "nominal"), both, strict=True)]
        for path, state, action in zip(paths, both[0].tolist(), actions[0].tolist(), strict=True):
            if not path or not clinic.ended[path[-1][0]]:
                path.append((state, action))
        if step < STEPS:
            noise = _gumbel(rng, len(states), model.states)
            both = np.stack([ward.leads(at, did, noise) for at, did in zip(both, actions, strict=True)])
    survived = ~clinic.death[both]
    return paths, survived[0], survived[1]


def line(fallback: str, episodes: int, found: Judged) -> Row:
    """Return frequencies per takeover of what became of both patients, as simulated and as judged, with errors.

    `met_both`: both met the goal, and so on. The error is that of the difference, one standard deviation.
    """
    met, would_meet, values = np.array(found.met), np.array(found.would_meet), np.array(found.values)
    row: Row = {"fallback": fallback, "episodes": episodes, "takeovers": len(values)}
    for name, first, second in _events():
        simulated = (met == first) & (would_meet == second)
        expected = (met == first) * np.where(second, values, 1.0 - values)
        differences = simulated - expected
        row |= {
            name: plain(expected.mean()),
            f"{name}_simulated": plain(simulated.mean()),
            f"{name}_error": plain(differences.std() / np.sqrt(len(values))),
        }
    return row | {outcome: found.outcomes[outcome] for outcome in ("needed", "needless", "harmful", "futile")}


def _events() -> Iterator[tuple[str, bool, bool]]:
    yield "only_fallback_survives", True, False
    yield "both_survive", True, True
    yield "only_deployed_survives", False, True
    yield "neither_survives", False, False


def _log(chances: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        return np.log(chances).astype(np.float32)


def _gumbel(rng: np.random.Generator, *size: int) -> npt.NDArray[np.float32]:
    return -np.log(rng.standard_exponential(size)).astype(np.float32)  # single precision would draw zeros


if __name__ == "__main__":
    main()
