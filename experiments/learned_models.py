"""How often the bands of learned models hold the true value: `python -m experiments.learned_models`.

Many models are learned from recordings of one environment, of three lengths each, in which actions are uniformly
random. On each a path of four steps is observed, and the query is: had the best policy taken over three steps ago, what
would be the probability of reaching the goal within 60 steps? `credible` is counted if it holds the value of the true
model; `guaranteed` if it holds the true model's bounds over every causal model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv
from monitor import check
from monitor.model import MDP
from monitor.model.counts import Counts, posterior_mean
from monitor.model.io import load_model
from monitor.types import BandSettings, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ENVIRONMENTS", "SIZES", "Environment", "environment", "learned", "one_model", "summary"]

Ints = npt.NDArray[np.int64]
Row = dict[str, Any]
"""`environment`, `steps`, `model`; true value and bounds, both bands, `support`."""
ENVIRONMENTS = ("CliffWalkingSlippery-v1", "FrozenLake-v1?is_slippery=true")
SIZES = (3_000, 30_000, 300_000)
"""Recorded steps of a model."""
MODELS = 1_000
LONGEST = 100
"""Steps after which a recorded episode is cut off."""
QUERY = 'best@3.P=? [ F<=60 "goal" ]'
PAIRS = 4


class Environment(NamedTuple):
    """A true model with a label `goal`, and the best policy for reaching it."""

    name: str
    model: MDP
    best: list[int]


def main() -> None:
    """Learn all models; write one line for each, the summary and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--models", type=int, default=MODELS, help="of each length (default: %(default)s)")
    given = parser.parse_args()
    rows: list[Row] = []
    for source in ENVIRONMENTS:
        there = environment(source)
        for number in progress(range(given.models), there.name):
            rows += [one_model(there, steps, number, given.seed) for steps in SIZES]
    write_csv(given.out / "learned-models.csv", rows)
    lines = summary(rows)
    write_csv(given.out / "learned-models-summary.csv", lines)
    for line in lines:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    save(draw(lines), given.out / "learned-models.png")


def environment(source: str) -> Environment:
    """Return an environment of Gymnasium whose absorbing state with the only reward, or the last state, is the goal."""
    model = load_model(f"gymnasium:{source}")
    last = model.states - 1
    goal = next(s for s in range(last, -1, -1) if model.is_absorbing(s))
    model = replace(model, labels={"goal": np.arange(model.states) == goal})
    return Environment(source.partition("-")[0], model, _best(model, goal))


def _best(model: MDP, goal: int) -> list[int]:
    """Return the actions that most likely reach the goal within 200 steps, by backward induction."""
    sizes = np.diff(model.indptr)
    of = np.repeat(np.arange(len(sizes)), sizes)
    values = (np.arange(model.states) == goal).astype(np.float64)
    actions = np.zeros(model.states, dtype=np.int64)
    for _ in range(200):
        means = np.bincount(of, model.probabilities * values[model.successors], len(sizes))
        table = means.reshape(model.states, model.actions)
        actions, values = table.argmax(axis=1), np.maximum(table.max(axis=1), values)
    return [int(action) for action in actions]


def one_model(there: Environment, steps: int, number: int, seed: int) -> Row:
    """Learn a model, observe a path, and compare its bands with the truth."""
    rng = np.random.default_rng((seed, number, steps))
    model = learned(there.model, *_recorded(there.model, steps, rng))
    path = _possible_path(there.model, model, rng)
    truth = _ask(there.model, there.best, path, None)
    found = _ask(model, [*there.best, 0], path, BandSettings(seed=number))
    assert truth.value is not None
    assert truth.bounds is not None
    assert found.credible is not None
    assert found.guaranteed is not None
    row: Row = {"environment": there.name, "steps": steps, "model": number, "truth": plain(truth.value)}
    for name, (low, high) in (("bounds", truth.bounds), ("credible", found.credible), ("guaranteed", found.guaranteed)):
        row |= {f"{name}_low": plain(low), f"{name}_high": plain(high)}
    row["support"] = found.support
    return row


def _ask(model: MDP, best: Sequence[int], path: Sequence[tuple[int, int]], bands: BandSettings | None) -> Verdict:
    uniform = np.full((model.states, model.actions), 1.0 / model.actions)
    policies = {"nominal": uniform, "best": list(best)}
    return check(QUERY, model=model, path=path, policies=policies, causal_model="any", bands=bands)


def _recorded(model: MDP, steps: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Return states, actions and successors [steps] of episodes with uniformly random actions."""
    begins, ends = np.cumsum(model.probabilities), model.indptr[1:]
    before = np.concatenate([[0.0], begins])
    actions, chances = rng.integers(model.actions, size=steps), rng.random(steps)
    states, successors = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    first = _first_state(model)
    absorbing = [model.is_absorbing(state) for state in range(model.states)]
    state = age = 0
    for n in range(steps):
        if age == 0:
            state = first
        row = state * model.actions + actions[n]
        begin = model.indptr[row]
        at = min(int(np.searchsorted(begins, before[begin] + chances[n], side="right")), int(ends[row]) - 1)
        states[n], successors[n] = state, model.successors[at]
        state = int(successors[n])
        age = 0 if absorbing[state] or age + 1 == LONGEST else age + 1
    return states, actions, successors


def _first_state(model: MDP) -> int:
    return 0 if model.initial is None else int(model.initial.argmax())


def learned(true: MDP, states: Ints, actions: Ints, successors: Ints) -> MDP:
    """Return the model learned from recorded steps, in their order; absorbing states of the true model are known."""
    elsewhere, width = true.states, true.actions
    rows = states * width + actions
    seen, first, inverse, visits = np.unique(
        rows * (elsewhere + 1) + successors, return_index=True, return_inverse=True, return_counts=True
    )
    del inverse
    since = [int((rows[begin + 1 :] == key // (elsewhere + 1)).sum()) for key, begin in zip(seen, first, strict=True)]
    different, begins = np.unique(rows, return_index=True)
    order = np.zeros((elsewhere + 1) * width, dtype=np.int64)
    order[different[np.argsort(begins)]] = np.arange(1, len(different) + 1)
    given = [
        (row, row // width if row // width == elsewhere or true.is_absorbing(row // width) else elsewhere)
        for row in range(len(order))
        if order[row] == 0
    ]
    keys = np.concatenate([seen, [row * (elsewhere + 1) + target for row, target in given]]).astype(np.int64)
    counts, later = (np.concatenate([values, np.zeros(len(given), dtype=np.int64)]) for values in (visits, since))
    sort = np.argsort(keys)
    keys, counts, later = keys[sort], counts[sort].astype(np.int64), later[sort].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // (elsewhere + 1), minlength=len(order)))])
    goal = np.append(true.labels["goal"], False)
    return MDP.from_rows(
        states=elsewhere + 1,
        actions=width,
        indptr=indptr,
        successors=keys % (elsewhere + 1),
        probabilities=posterior_mean(counts, indptr, 1.0),
        labels={"goal": goal},
        counts=Counts(counts, later, order, elsewhere),
    )


def _possible_path(true: MDP, model: MDP, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return the newest path of the true model, from the first state on, whose transitions the learned one has."""
    for path in _paths(true, rng):
        followed = zip(path, [pair[0] for pair in path[1:]], strict=False)
        if all(successor in model.row(*pair)[0] for pair, successor in followed):
            return path
    raise AssertionError("paths have no end")


def _paths(true: MDP, rng: np.random.Generator) -> Iterator[list[tuple[int, int]]]:
    while True:
        state, path = _first_state(true), []
        for _ in range(PAIRS):
            action = int(rng.integers(true.actions))
            path.append((state, action))
            successors, probabilities = true.row(state, action)
            state = int(rng.choice(successors, p=probabilities))
        yield path


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return coverage, its standard error and the median width of both bands, by environment and steps."""
    lines: list[Row] = []
    for name, steps in dict.fromkeys((row["environment"], row["steps"]) for row in rows):
        part = [row for row in rows if (row["environment"], row["steps"]) == (name, steps)]
        line: Row = {"environment": name, "steps": steps, "models": len(part)}
        for band, low, high in (("credible", "truth", "truth"), ("guaranteed", "bounds_low", "bounds_high")):
            held = np.array([_holds(row, band, low, high) for row in part])
            widths = [row[f"{band}_high"] - row[f"{band}_low"] for row in part]
            line |= {
                f"{band}_coverage": plain(float(held.mean())),
                f"{band}_error": plain(float(np.sqrt(held.mean() * (1 - held.mean()) / len(part)))),
                f"{band}_width": plain(float(np.median(widths))),
            }
        line["bounds_width"] = plain(float(np.median([row["bounds_high"] - row["bounds_low"] for row in part])))
        lines.append(line)
    return lines


def _holds(row: Row, band: str, low: str, high: str) -> bool:
    return bool(row[f"{band}_low"] <= row[low] + 1e-9 and row[high] <= row[f"{band}_high"] + 1e-9)


def draw(lines: Sequence[Row]) -> Figure:
    """Draw coverage and widths against the number of recorded steps."""
    picture = figure(10, 4)
    coverage, width = picture.subplots(1, 2)
    for name, dash in zip(dict.fromkeys(line["environment"] for line in lines), ("-", "--"), strict=False):
        part = [line for line in lines if line["environment"] == name]
        steps = [line["steps"] for line in part]
        for band, ink in (("credible", BLUE), ("guaranteed", ORANGE)):
            ends = [2 * line[f"{band}_error"] for line in part]
            shares = [line[f"{band}_coverage"] for line in part]
            coverage.errorbar(steps, shares, yerr=ends, color=ink, linestyle=dash, marker="o", capsize=3)
            widths = [line[f"{band}_width"] for line in part]
            width.plot(steps, widths, color=ink, linestyle=dash, marker="o", label=f"{band}, {name}")
        width.plot(
            steps, [line["bounds_width"] for line in part], color="black", linestyle=dash, label=f"bounds, {name}"
        )
    coverage.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
    coverage.set(xscale="log", xlabel="recorded steps", title="Fraction of models whose band holds the truth")
    width.set(xscale="log", yscale="log", xlabel="recorded steps", title="Median width of the band")
    picture.legend(*width.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return picture


if __name__ == "__main__":
    main()
