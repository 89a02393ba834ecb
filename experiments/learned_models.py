"""How often the bands of learned models hold the true value: `python -m experiments.learned_models`.

Models are learned from recordings of an environment, of three lengths. The recorded agent has a policy that is the best
one where nothing slips, and takes one action in five at random. On each model a path of four steps of that agent is
observed, on which no answer is certain, and two queries are answered. The short one, as a monitor has it: would the
agent have kept out of trouble without random actions? The long one: would it have reached the goal with the policy that
is best where actions slip? `credible` is counted if it holds the value of the true model; `guaranteed` if it holds the
true model's bounds over every causal model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv
from experiments.recordings import learned, recorded
from monitor.arrays import Floats, Ints
from monitor.evaluation.check import check_many
from monitor.model import MDP
from monitor.model.io import load_model
from monitor.types import BandSettings, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ENVIRONMENTS", "SIZES", "Environment", "environment", "models", "summary"]

Row = dict[str, Any]
"""`environment`, `query`, `steps`, `model`; true value and bounds, both bands, `support`."""
SIZES = (3_000, 30_000, 300_000)
"""Recorded steps of a model."""
MODELS = 20
RANDOM = 0.2
"""Fraction of random actions in the recordings."""
PAIRS = 4
CERTAIN = 0.02
"""A true value nearer to 0 or 1 is no test of a band."""
HORIZON = 200
"""Steps for which policies are the best."""


class Source(NamedTuple):
    """An environment of Gymnasium, and what is asked about it.

    `slips`, `straight`: the environment, and the one in which actions never slip. `begin`: the state in which observed
    paths begin. `bad`: states to avoid, labelled so. `queries`: name -> text.
    """

    name: str
    slips: str
    straight: str
    begin: int
    bad: tuple[int, ...]
    queries: dict[str, str]


ENVIRONMENTS = (
    Source(
        "CliffWalkingSlippery",
        "gymnasium:CliffWalkingSlippery-v1",
        "gymnasium:CliffWalking-v1",
        begin=25,
        bad=(36,),  # whoever falls starts again
        queries={"short": 'straight@3.P=? [ G<=6 !"bad" ]', "long": 'skilful@3.P=? [ F<=60 "goal" ]'},
    ),
    Source(
        "FrozenLake",
        "gymnasium:FrozenLake-v1?is_slippery=true",
        "gymnasium:FrozenLake-v1?is_slippery=false",
        begin=0,
        bad=(5, 7, 11, 12),
        queries={"short": 'straight@3.P=? [ G<=6 !"bad" ]', "long": 'skilful@3.P=? [ F<=60 "goal" ]'},
    ),
)


class Environment(NamedTuple):
    """A true model with labels `goal` and `bad`, the policy of the recorded agent [S, A], and actions [S].

    `straight`: the best ones if nothing slipped, which the agent takes most of the time; `skilful`: the best as it
    slips.
    """

    source: Source
    model: MDP
    behaviour: Floats
    straight: Ints
    best: Ints


def main() -> None:
    """Learn all models; write one line for each and query, the summary and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--models", type=int, default=MODELS, help="of each length (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first model (default: %(default)s)")
    given = parser.parse_args()
    rows: list[Row] = []
    for source in ENVIRONMENTS:
        there = environment(source)
        for number in progress(range(given.first, given.first + given.models), source.name):
            rows += models(there, number, given.seed)
    write_csv(given.out / "learned-models.csv", rows)
    lines = summary(rows)
    write_csv(given.out / "learned-models-summary.csv", lines)
    for line in lines:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    save(draw(lines), given.out / "learned-models.png")


def environment(source: Source) -> Environment:
    """Return an environment, in which the goal is the last absorbing state."""
    model = load_model(source.slips)
    goal = next(state for state in range(model.states - 1, -1, -1) if model.is_absorbing(state))
    at = np.arange(model.states)
    model = replace(model, labels={"goal": at == goal, "bad": np.isin(at, source.bad)})
    behaviour = np.full((model.states, model.actions), RANDOM / model.actions)
    straight = _best(load_model(source.straight), goal)
    behaviour[at, straight] += 1.0 - RANDOM
    return Environment(source, model, behaviour, straight, _best(model, goal))


def _best(model: MDP, goal: int) -> Ints:
    """Return the actions [S] that reach the goal most likely within `HORIZON` steps, of these the fastest."""
    sizes = np.diff(model.indptr)
    of = np.repeat(np.arange(len(sizes)), sizes)
    values = (np.arange(model.states) == goal).astype(np.float64)
    for _ in range(HORIZON):
        means = np.bincount(of, model.probabilities * values[model.successors], len(sizes))
        table = means.reshape(model.states, model.actions)
        values = np.maximum(0.999 * table.max(axis=1), values)
    best: Ints = table.argmax(axis=1)
    return best


def models(there: Environment, number: int, seed: int) -> Iterator[Row]:
    """Learn a model from a recording of each length, observe a path, and compare its bands with the truth."""
    for steps in SIZES:
        rng = np.random.default_rng((seed, number, steps))
        model = learned(there.model, recorded(there.model, there.behaviour, steps, rng))
        path, truths = _informative_path(there, model, rng)
        found = _answers(there, model, path, BandSettings(seed=number))
        for name, truth, answer in zip(there.source.queries, truths, found, strict=True):
            yield {
                "environment": there.source.name,
                "query": name,
                "steps": steps,
                "model": number,
                **_numbers(truth, answer),
            }


def _numbers(truth: Verdict, answer: Verdict) -> Row:
    assert truth.value is not None
    row: Row = {"truth": plain(truth.value)}
    for name, band in (("bounds", truth.bounds), ("credible", answer.credible), ("guaranteed", answer.guaranteed)):
        assert band is not None
        row |= {f"{name}_low": plain(band[0]), f"{name}_high": plain(band[1])}
    return {**row, "support": answer.support}


def _answers(
    there: Environment, model: MDP, path: Sequence[tuple[int, int]], bands: BandSettings | None
) -> list[Verdict]:
    more = model.states - there.model.states  # `elsewhere`, where any action will do
    policies = {
        "nominal": np.vstack([there.behaviour, *[there.behaviour[:1]] * more]),
        "straight": [*there.straight.tolist(), *[0] * more],
        "skilful": [*there.best.tolist(), *[0] * more],
    }
    queries = list(there.source.queries.values())
    return check_many(queries, model=model, path=path, policies=policies, causal_model="any", bands=bands)


def _informative_path(
    there: Environment, model: MDP, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[Verdict]]:
    """Return a path whose transitions the learned model has, on which no answer is certain, and the true answers."""
    for path in _paths(there, rng):
        followed = zip(path, [pair[0] for pair in path[1:]], strict=False)
        if all(successor in model.row(*pair)[0] for pair, successor in followed):
            truths = _answers(there, there.model, path, None)
            if all(CERTAIN <= truth.value <= 1.0 - CERTAIN for truth in truths if truth.value is not None):
                return path, truths
    raise AssertionError("paths have no end")


def _paths(there: Environment, rng: np.random.Generator) -> Iterator[list[tuple[int, int]]]:
    while True:
        state, path = there.source.begin, []
        for _ in range(PAIRS):
            action = int(rng.choice(there.model.actions, p=there.behaviour[state]))
            path.append((state, action))
            successors, probabilities = there.model.row(state, action)
            state = int(rng.choice(successors, p=probabilities))
        yield path


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return coverage, its standard error and the median width of both bands, by environment, query and steps."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["environment"], row["query"], row["steps"]), []).append(row)
    return [_summary(*key, part) for key, part in sorted(groups.items())]


def _summary(name: str, query: str, steps: int, part: Sequence[Row]) -> Row:
    line: Row = {"environment": name, "query": query, "steps": steps, "models": len(part)}
    for band, low, high in (("credible", "truth", "truth"), ("guaranteed", "bounds_low", "bounds_high")):
        held = np.mean([_holds(row, band, low, high) for row in part])
        line |= {
            f"{band}_coverage": plain(float(held)),
            f"{band}_error": plain(float(np.sqrt(held * (1 - held) / len(part)))),
            f"{band}_width": _width(part, band),
        }
    line["bounds_width"] = _width(part, "bounds")
    return line


def _width(part: Sequence[Row], band: str) -> float:
    return plain(float(np.median([row[f"{band}_high"] - row[f"{band}_low"] for row in part])))


def _holds(row: Row, band: str, low: str, high: str) -> bool:
    return bool(row[f"{band}_low"] <= row[low] + 1e-9 and row[high] <= row[f"{band}_high"] + 1e-9)


def draw(lines: Sequence[Row]) -> Figure:
    """Draw coverage and widths against the number of recorded steps, one column for each environment and query."""
    kinds = list(dict.fromkeys((line["environment"], line["query"]) for line in lines))
    picture = figure(12, 6)
    places = picture.subplots(2, len(kinds), sharex=True, sharey="row")
    for (name, query), (coverage, width) in zip(kinds, places.T, strict=True):
        part = [line for line in lines if (line["environment"], line["query"]) == (name, query)]
        steps = [line["steps"] for line in part]
        for band, ink in (("credible", BLUE), ("guaranteed", ORANGE)):
            errors = [2 * line[f"{band}_error"] for line in part]
            held = [line[f"{band}_coverage"] for line in part]
            coverage.errorbar(steps, held, yerr=errors, color=ink, marker="o", capsize=3, label=band)
            width.plot(steps, [line[f"{band}_width"] for line in part], color=ink, marker="o")
        width.plot(steps, [line["bounds_width"] for line in part], color="black", linestyle="--", label="bounds, true")
        coverage.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
        coverage.set(xscale="log", title=f"{name}, {query}")
        width.set(xlabel="recorded steps")
    places[0, 0].set(ylabel="models whose band holds the truth")
    places[1, 0].set(ylabel="median width")
    entries = [
        *zip(*places[0, 0].get_legend_handles_labels(), strict=True),
        *zip(*places[1, 0].get_legend_handles_labels(), strict=True),
    ]
    picture.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=3, frameon=False)
    return picture


if __name__ == "__main__":
    main()
