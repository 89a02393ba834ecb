"""Few changes in hindsight, as Tsirtsis & Gomez-Rodriguez: `python -m experiments.few_changes`.

Figures 2 and 3 of *Counterfactual Explanations in Sequential Decision Making Under Uncertainty* (NeurIPS 2021, arXiv
2107.02776): how much better would an observed realisation have been, given the noise it had, with at most k other
actions? The authors estimate each counterfactual distribution from 1,000 draws of the noise. Here it is exact, and for
some realisations estimated as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from experiments.output import BLUE, ORANGE, arguments, figure, plain, progress, save, write_csv
from experiments.synthetic import ACTIONS, STATES, Floats, Ints, Realisation, drawn_rows, observed
from monitor.causal.row import conditional_choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "CHANGES",
    "best_changes",
    "compared",
    "explanations",
    "observed_actions",
    "policy_choices",
    "summary",
    "table",
]

Row = dict[str, Any]

ALPHAS: Final = (0.0, 0.01, 0.05, 0.1, 0.4, 0.5, 1.0)
"""Uncertainty of a model: each row has one weight of 1 and the others uniform on [0, alpha]."""
CHANGES: Final = (2, 5, 10)
MOST: Final = max(CHANGES)
PATHS: Final = 50
COMPARED: Final = 20
"""Realisations whose rows are drawn as well, of the most uncertain model."""
WORLDS: Final = 100
"""Drawn to count explanations, as in the paper."""
ROUNDING: Final = 1e-9
"""By which a change must be better than none."""
SHOWN: Final = 0.1
"""The alpha of the histogram."""


def main() -> None:
    """Compute all realisations, draw the rows of some; write both, and the figure."""
    parser = arguments(__doc__, seed=0)
    parser.add_argument("--paths", type=int, default=PATHS, help="observed in each model (default: %(default)s)")
    parser.add_argument("--compared", type=int, default=COMPARED, help="with drawn rows (default: %(default)s)")
    given = parser.parse_args()
    rows = table(given.seed, given.paths)
    write_csv(given.out / "few-changes.csv", rows)
    lines = summary(rows)
    write_csv(given.out / "few-changes-summary.csv", lines)
    drawn = compared(given.seed, given.compared)
    write_csv(given.out / "few-changes-drawn.csv", drawn)
    for line in [*(line for line in lines if line["k"] in CHANGES), *drawn]:
        print("  ".join(f"{name} {value}" for name, value in line.items()))
    save(draw(rows), given.out / "few-changes.png")


def observed_actions(states: int, actions: Ints, available: int) -> Floats:
    """Return unchanged decisions as in the paper, [T, S, A]: the observed action at its step, whatever the state."""
    return np.repeat(np.eye(available)[actions][:, None], states, axis=1)


def policy_choices(nominal: Floats, states: Ints, actions: Ints) -> Floats:
    """Return unchanged decisions as in docs/semantics/formulas.md, section 7, [T, S, A].

    The observed action in the state really visited, elsewhere the choice of the policy `nominal` [T, S, A], given the
    action that its noise produced at this step.
    """
    result = np.zeros_like(nominal)
    for step, (state, action) in enumerate(zip(states, actions, strict=True)):
        for other, choice in enumerate(nominal[step]):
            result[step, other] = conditional_choices(nominal[step, state], int(action), choice)
        result[step, state] = np.eye(nominal.shape[2])[action]
    return result


def best_changes(rows: Floats, unchanged: Floats, most: int) -> tuple[Floats, Ints]:
    """Return the best mean of what is earned with at most 0, 1, ..., `most` changes, by backward induction.

    Args:
        rows: of each step, [T, A, S, S].
        unchanged: distribution of the action of an unchanged decision, [T, S, A].
        most: changes.

    Returns:
        Values by changes left and first state, [most + 1, S], and the changed action by step, changes left and state,
        [T, most + 1, S]; -1 where an unchanged decision is at least as good.
    """
    steps, _, states, _ = rows.shape
    ahead = np.zeros((most + 1, states))
    changed = np.full((steps, most + 1, states), -1)
    for step in reversed(range(steps)):
        values = np.arange(states) + np.moveaxis(rows[step] @ ahead.T, 2, 0)  # [changes left, A, S]
        ahead = np.einsum("cas,sa->cs", values, unchanged[step])
        best = values[:-1].max(axis=1)
        better = best > ahead[1:] + ROUNDING
        changed[step, 1:][better] = values[:-1].argmax(axis=1)[better]
        ahead[1:] = np.maximum(ahead[1:], best)
    return ahead, changed


def explanations(real: Realisation, changed: Ints, left: int, rng: np.random.Generator) -> int:
    """Return how many different sequences of actions other than the observed one occur in WORLDS worlds.

    `changed` is that of the observed actions, `left` the number of changes at the start.
    """
    states = np.full(WORLDS, real.states[0])
    remaining = np.full(WORLDS, left)
    sequences = np.empty((WORLDS, len(real.states)), dtype=np.int64)
    for step, observed_action in enumerate(real.actions):
        chosen = changed[step, remaining, states]
        sequences[:, step] = np.where(chosen < 0, observed_action, chosen)
        remaining -= chosen >= 0
        limits = np.cumsum(real.rows[step, sequences[:, step], states], axis=1)
        states = (rng.random(WORLDS)[:, None] * limits[:, -1:] >= limits).sum(axis=1)
    found = np.unique(sequences, axis=0)
    return int((found != real.actions).any(axis=1).sum())


def table(seed: int, paths: int, alphas: Sequence[float] = ALPHAS) -> list[Row]:
    """Return one row for each realisation and number of changes.

    `outcome`: the best mean with that many changes; `improvement`: in percent of the observed outcome; `by_policy`: the
    improvement if states that were not visited see the policy's action; `explanations`: different action sequences.
    """
    lines = []
    for number in progress(range(len(alphas)), "models"):
        for each in observed(alphas[number], seed, paths):
            real, start = each.real, each.real.states[0]
            rng = np.random.default_rng([seed, each.model, each.path])
            best, changed = best_changes(real.rows, observed_actions(STATES, real.actions, ACTIONS), MOST)
            by_policy, _ = best_changes(real.rows, policy_choices(each.nominal, real.states, real.actions), MOST)
            lines += [
                {
                    "alpha": alphas[number],
                    "model": each.model,
                    "path": each.path,
                    "k": k,
                    "outcome": plain(best[k, start]),
                    "improvement": plain(real.improvement(best[k, start])),
                    "by_policy": plain(real.improvement(by_policy[k, start])),
                    "explanations": explanations(real, changed, k, rng),
                }
                for k in range(MOST + 1)
            ]
    return lines


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return means over the realisations of each alpha and k, and standard errors from the means of the models."""
    groups: defaultdict[tuple[float, int], defaultdict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["alpha"], row["k"]][row["model"]].append(row)
    lines: list[Row] = []
    for (alpha, k), models in groups.items():
        line: Row = {"alpha": alpha, "k": k}
        for name in ("outcome", "improvement", "by_policy", "explanations"):
            means = np.array([np.mean([row[name] for row in mine]) for mine in models.values()])
            line |= {name: round(float(means.mean()), 4)}
            line |= {f"{name}_error": round(float(means.std(ddof=1) / np.sqrt(len(means))), 4)}
        lines.append(line)
    return lines


def compared(seed: int, count: int) -> list[Row]:
    """Return mean improvements in percent with exact and with drawn rows, in the first of the most uncertain models."""
    rng = np.random.default_rng(seed)
    found = np.zeros((2, count, MOST + 1))
    reals = list(observed(ALPHAS[-1], seed, count, models=1))
    for number in progress(range(count), "rows"):
        real = reals[number].real
        unchanged = observed_actions(STATES, real.actions, ACTIONS)
        for column, rows in enumerate((real.rows, drawn_rows(reals[number].rows, real.states, real.actions, rng))):
            best, _ = best_changes(rows, unchanged, MOST)
            found[column, number] = real.improvement(best[:, real.states[0]])
    exact, drawn = found.mean(axis=1)
    error = (found[1] - found[0]).std(axis=0, ddof=1) / np.sqrt(count)
    return [
        {
            "k": k,
            "realisations": count,
            "exact": round(float(exact[k]), 4),
            "drawn": round(float(drawn[k]), 4),
            "difference_error": round(float(error[k]), 4),
        }
        for k in CHANGES
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Return the paper's panels: distribution, improvement by alpha, outcome and explanations by k."""
    picture = figure(10.0, 7.0)
    distribution, by_alpha, outcome, number = picture.subplots(2, 2).ravel()
    looks = dict(zip(CHANGES, (":", "--", "-"), strict=True))
    lines = summary(rows)
    for k, look in looks.items():
        shown = [row["improvement"] for row in rows if (row["alpha"], row["k"]) == (SHOWN, k)]
        distribution.hist(
            shown, bins=np.arange(0.0, 30.5, 0.5).tolist(), histtype="step", label=f"k = {k}", linestyle=look
        )
        mine = [line for line in lines if line["k"] == k]
        for name, color, label in (("improvement", BLUE, "observed action"), ("by_policy", ORANGE, "policy")):
            points = [line["alpha"] for line in mine], [line[name] for line in mine]
            by_alpha.plot(*points, color=color, linestyle=look, label=f"k = {k}, else {label}")
    for alpha in ALPHAS:
        mine = [line for line in lines if line["alpha"] == alpha]
        for panel, name in ((outcome, "outcome"), (number, "explanations")):
            panel.plot([line["k"] for line in mine], [line[name] for line in mine], label=f"alpha = {alpha}")
    distribution.set(xlabel=f"improvement in percent, alpha = {SHOWN}", ylabel="realisations")
    by_alpha.set(xlabel="alpha", ylabel="mean improvement in percent", ylim=(0.0, None))
    outcome.set(xlabel="k", ylabel="mean outcome")
    number.set(xlabel="k", ylabel=f"different explanations in {WORLDS} worlds")
    for panel in (distribution, by_alpha, number):
        panel.legend(fontsize="small")
    return picture


if __name__ == "__main__":
    main()
