"""Survival against takeovers per episode on ICU-Sepsis: `python -m experiments.takeovers`.

The deployed policy acts until a rule hands over, for the rest of the episode, to a fallback. Each rule compares a value
of the state, as `monitor.values` gives it, with a threshold:

- `risk`: the probability of death within 20 steps if nothing changes;
- `regret`: the deployed policy misses `P>=theta [ G<=20 !"death" ]`, and the fallback meets it;
- `effect`: how much more probable survival of 20 steps is under the fallback;
- `handover`: the probability that within 10 steps it is too late to hand over.

Survival and takeovers are absorption probabilities of Markov chains, from linear equations. For two points of the
curves, episodes are simulated too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from experiments.output import BLUE, ORANGE, arguments, figure, plain, save, write_csv
from monitor import load_model, load_policy, values
from monitor.model import MDP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "EPISODES",
    "FALLBACKS",
    "RULES",
    "THETA",
    "Clinic",
    "Row",
    "curve",
    "deciles",
    "exact",
    "named",
    "simulated",
    "table",
]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Row = dict[str, Any]

POLICIES: Final = Path(__file__).parent.parent / "policies" / "icu-sepsis"
FALLBACKS: Final = ("optimal", "clinicians")
RULES: Final = ("risk", "regret", "effect", "handover")
GOAL: Final = '[ G<=20 !"death" ]'
THETA: Final = 0.75
"""Bound of `regret` where episodes are simulated, and of the goal of `handover`."""
POINTS: Final = 60
"""Thresholds of a curve."""
EPISODES: Final = 100_000


class Clinic:
    """ICU-Sepsis with its three policies, as matrices."""

    def __init__(self) -> None:
        self.model: MDP = load_model(POLICIES / "model.npz")
        self.policies = {
            "nominal": load_policy(POLICIES / "deployed.yaml", self.model).table,
            **{name: load_policy(POLICIES / f"{name}.yaml", self.model).table for name in FALLBACKS},
        }
        self.death = self.model.labels["death"]
        absorbing = [self.model.is_absorbing(state) for state in range(self.model.states)]
        self.ended = self.death | self.model.labels["survival"] | absorbing
        assert self.model.initial is not None
        self.initial: Floats = self.model.initial

    @lru_cache  # noqa: B019 - one clinic a process
    def values(self, query: str) -> Floats:
        """Return the value of a query in each state, [S]."""
        policies = {named(name): table for name, table in self.policies.items()}
        return values(query, model=self.model, policies=policies)

    def regret(self, fallback: str, theta: float) -> Bools:
        """Return the states [S] in which nominal misses the goal at `theta` and the fallback, from now on, meets it."""
        own, other = (self.values(f"{name}@0.P=? {GOAL}") for name in ("nominal", named(fallback)))
        return (own < theta) & (other >= theta)

    def choices(self, name: str) -> Floats:
        """Return the probabilities of a policy's actions, [S, A]."""
        table = self.policies[name]
        if table.actions is not None:
            return np.eye(self.model.actions)[table.actions]
        assert table.probabilities is not None
        return table.probabilities

    @lru_cache  # noqa: B019 - as above
    def survival(self, name: str) -> Floats:
        """Return the probability of survival under a policy, [S]."""
        return _first(self.chain(name), self.ended, [~self.death])[:, 0]

    @lru_cache  # noqa: B019 - as above
    def chain(self, name: str) -> csr_array:
        """Return the transition matrix under a policy, [S, S]."""
        model = self.model
        rows = csr_array(
            (model.probabilities, model.successors, model.indptr), shape=(model.states * model.actions, model.states)
        )
        weights = csr_array(
            (self.choices(name).ravel(), np.arange(rows.shape[0]), np.arange(0, rows.shape[0] + 1, model.actions)),
            shape=(model.states, rows.shape[0]),
        )
        return csr_array(weights @ rows)


def named(policy: str) -> str:
    """Return the name of a policy in formulas, where `optimal` is a word of the language."""
    return "planned" if policy == "optimal" else policy


class Point(NamedTuple):
    """Probabilities of an episode: of survival, and of a takeover."""

    takeovers: float
    survival: float


def main() -> None:
    """Compute the curves, simulate two of their points; write both, and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="simulated (default: %(default)s)")
    given = parser.parse_args()
    clinic = Clinic()
    rows = table(clinic)
    write_csv(given.out / "takeovers.csv", rows)
    lines = [_compared(clinic, fallback, given.episodes, given.seed) for fallback in FALLBACKS]
    write_csv(given.out / "takeovers-simulated.csv", lines)
    for line in lines:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    best = deciles(rows)
    write_csv(given.out / "takeovers-summary.csv", best)
    for line in best:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    save(draw(rows), given.out / "takeovers.png")


def table(clinic: Clinic) -> list[Row]:
    """Return the points of all curves, one row each."""
    return [
        {"fallback": fallback, "rule": rule, "threshold": plain(threshold), **_plainly(point)}
        for fallback in FALLBACKS
        for rule in RULES
        for threshold, point in curve(clinic, fallback, rule)
    ]


def curve(clinic: Clinic, fallback: str, rule: str) -> list[tuple[float, Point]]:
    """Return threshold and exact probabilities, for thresholds that spread over the states."""
    if rule == "regret":
        regions = [(theta, clinic.regret(fallback, theta)) for theta in np.linspace(0.3, 0.98, POINTS)]
    else:
        found = clinic.values(
            {
                "risk": 'nominal@0.P=? [ F<=20 "death" ]',
                "effect": f"delta({named(fallback)},nominal)@0.P=? {GOAL}",
                "handover": f"handover({named(fallback)}, P>={THETA} {GOAL}, 10)",
            }[rule]
        )
        grid = np.unique(np.quantile(found[~clinic.ended & (found > 0.0)], np.linspace(0.0, 0.99, POINTS)))
        regions = [(threshold, found >= threshold) for threshold in grid]
    return [(float(threshold), exact(clinic, fallback, region)) for threshold, region in regions]


def exact(clinic: Clinic, fallback: str, region: Bools) -> Point:
    """Return the probabilities of an episode in which entering `region` [S] hands over."""
    taken = region & ~clinic.ended
    after = np.where(taken, clinic.survival(fallback), ~clinic.death)
    takeovers, survival = clinic.initial @ _first(clinic.chain("nominal"), clinic.ended | taken, [taken, after])
    return Point(float(takeovers), float(survival))


def _first(chain: csr_array, settled: Bools, payoffs: Sequence[npt.ArrayLike]) -> Floats:
    """Return the mean payoffs [S, n] of the first settled state on the way: (I - P) x = P payoff among the others."""
    on = np.flatnonzero(~settled)
    result = np.where(settled, np.array(payoffs, dtype=np.float64), 0.0).T
    result[on] = splu((eye_array(len(on)) - chain[on][:, on]).tocsc()).solve(chain[on] @ result)
    return result


def simulated(
    clinic: Clinic, fallback: str, region: Bools, episodes: int, rng: np.random.Generator
) -> tuple[Bools, Bools]:
    """Return which of the episodes, simulated side by side, survived, and in which the fallback took over, [episodes].

    Shares no step with `exact`: it draws actions from the policies and successors from the model's rows.
    """
    model = clinic.model
    state = rng.choice(model.states, size=episodes, p=clinic.initial)
    taken = np.zeros(episodes, dtype=np.bool_)
    going = np.flatnonzero(~clinic.ended[state])
    tables = [np.cumsum(clinic.choices(name), axis=1) for name in ("nominal", fallback)]
    sums = np.concatenate([[0.0], np.cumsum(model.probabilities)])
    while len(going):
        at = state[going]
        taken[going] |= region[at]
        limits = np.where(taken[going, None], tables[1][at], tables[0][at])
        action = (rng.random(len(going))[:, None] * limits[:, -1:] >= limits).sum(axis=1)
        first, last = (model.indptr[at * model.actions + action + end] for end in (0, 1))
        draw = sums[first] + rng.random(len(going)) * (sums[last] - sums[first])
        state[going] = model.successors[np.clip(np.searchsorted(sums, draw, side="right") - 1, first, last - 1)]
        going = going[~clinic.ended[state[going]]]
    return ~clinic.death[state], taken


def _compared(clinic: Clinic, fallback: str, episodes: int, seed: int) -> Row:
    """Return exact and simulated probabilities for handing over at regret."""
    region = clinic.regret(fallback, THETA)
    survived, taken = simulated(clinic, fallback, region, episodes, np.random.default_rng(seed))
    line: Row = {"fallback": fallback, "episodes": episodes}
    for name, sample, value in zip(
        ("takeovers", "survival"), (taken, survived), exact(clinic, fallback, region), strict=True
    ):
        error = float(np.sqrt(value * (1.0 - value) / episodes))
        line |= {name: plain(value), f"{name}_simulated": plain(sample.mean()), f"{name}_error": plain(error)}
    return line


def deciles(rows: Sequence[Row]) -> list[Row]:
    """Return the best survival at .1, .2, ... takeovers per episode by rule; empty where it has no threshold on a side.

    Between two thresholds it is that of choosing one of them at random.
    """
    lines: list[Row] = []
    for fallback in FALLBACKS:
        for rule in RULES:
            takeovers, survival = np.array(_front(_points(rows, fallback, rule))).T
            line: Row = {"fallback": fallback, "rule": rule}
            for part in np.arange(1, 10) / 10:
                within = takeovers[0] <= part <= takeovers[-1]
                line[f"{part:.1f}"] = round(float(np.interp(part, takeovers, survival)), 4) if within else ""
            lines.append(line)
    return lines


def _points(rows: Sequence[Row], fallback: str, rule: str) -> list[Point]:
    found = [row for row in rows if (row["fallback"], row["rule"]) == (fallback, rule)]
    return sorted(Point(row["takeovers"], row["survival"]) for row in found)


def _front(points: Sequence[Point]) -> list[Point]:
    """Leave out points with more takeovers and less survival than another: regret at theta is not monotone in theta."""
    front: list[Point] = []
    for point in points:
        if not front or point.survival > front[-1].survival:
            front.append(point)
    return front


def _plainly(point: Point) -> Row:
    return {name: plain(value) for name, value in point._asdict().items()}


def draw(rows: Sequence[Row]) -> Figure:
    """Return the curves of the rules, one panel a fallback."""
    picture = figure(10.0, 4.2)
    panels = picture.subplots(1, len(FALLBACKS), sharex=True)
    looks = dict(zip(RULES, ((BLUE, "-"), (BLUE, ":"), (ORANGE, "-"), (ORANGE, ":")), strict=True))
    for panel, fallback in zip(panels, FALLBACKS, strict=True):
        for rule, (color, line) in looks.items():
            panel.plot(
                *zip(*_front(_points(rows, fallback, rule)), strict=True), color=color, linestyle=line, label=rule
            )
        panel.set(title=f"fallback: {fallback}", xlabel="takeovers per episode", ylabel="survival")
    panels[0].legend()
    return picture


if __name__ == "__main__":
    main()
