"""Work to recompute an alarm's numbers, estimated from the evidence alone.

Anyone can write an evidence file, and a formula of thirty characters can take minutes. So the recipient is warned
before the work begins, and decides. The estimate is the largest number of obligations that a formula can have; the
actual number may be smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from monitor.evidence.document import Evidence
from monitor.logic import Formula, parse
from monitor.logic.syntax import NOMINAL, Goal, Measure, Regret, Reward, Temporal
from monitor.logic.traversal import children, handover_goal, regret_goals, subformulas

MAX_WORK: Final = 100_000
"""Maximum number of obligations, counted at each offset, that are evaluated for untrusted evidence: seconds of work."""

PAIRS: Final = 100
"""Number of pairs of the path, counted at each offset, that cost as much as one obligation."""

DECISIONS: Final = 10
"""Cost of one obligation with decisions, for which all actions are tried, as a number of plain obligations."""

EXAMINED: Final = 4 * DECISIONS
"""Cost of one obligation of a missed goal whose recourse is examined, as a number of plain obligations."""

BOUNDED: Final = 10
"""Number of pairs of places that cost as much as one pair with bounds over causal models, for each observation."""

DRAWS: Final = 1_000
"""Number of sampled steps that cost as much as one obligation."""

NESTED: Final = 2_000, 256
"""In a world with numbers: maximum number of samples of `handover`, and maximum number of nested samples in each state,
under the policy to hand over to."""

TRIED: Final = 256 * 128 + 1_024
"""Maximum number of samples for the other decisions that are tried if a goal is missed in a world with numbers."""

AT_OFFSET: Final = 2 * 1_024
"""Number of samples of both policies at each further offset of the takeover, in a world with numbers."""


def work(evidence: Evidence) -> int:
    """Return the work, including posterior models, fits and samples, as a number of obligations to evaluate.

    Raises FormulaError if the evidence's text is not a formula.
    """
    last = max(len(evidence.path) - 1, 0)
    total = farthest = unfolded = steps = 0
    drawn = evidence.verdict.drawn
    limit, in_world = 0 if drawn is None else drawn.sampling.limit, evidence.verdict.causal_model == "world"
    for goal, changes in _goals(parse(evidence.text)):
        parts, offset = _parts(goal), goal.world.offset
        back = min(offset, last) if offset >= 0 else max(last + 1 + offset, 0)
        total += (parts + back) * (back + 1 if changes > 1 else 1)
        if changes > 1 and evidence.verdict.recourse is not None:
            total += _size(goal.measure) * EXAMINED
        farthest, unfolded = max(farthest, back), unfolded + changes * parts
        nested = in_world and handover_goal(goal) is not None
        steps += (min(limit, NESTED[0]) * NESTED[1] if nested else limit) * changes * parts
        if in_world and drawn is not None and changes > 1:
            steps += (AT_OFFSET * back + (0 if evidence.verdict.recourse is None else TRIED)) * parts
    total += len(evidence.path) * (farthest + 1) // PAIRS
    if evidence.verdict.belief is not None:
        # two worlds are evaluated together at each offset of a profile; each world may be in any place of the belief
        pairs = sum((len(each) // 2) ** 2 for each in evidence.inputs[-farthest - 1 :]) * (farthest + 1)
        drawn_models = 0 if evidence.verdict.bands is None else evidence.verdict.bands.draws
        seen = [] if evidence.verdict.unseen is None else [each for each, _ in evidence.path if isinstance(each, int)]
        bounded = BOUNDED * (1 + max(seen, default=0)) if evidence.verdict.causal_model == "any" else 0
        total += pairs * (1 + bounded + 2 * drawn_models)  # each at both extremes
    if evidence.verdict.bands is not None:
        bands = evidence.verdict.bands
        total += max(bands.draws, bands.fits) * (unfolded + farthest)
    return total + steps // DRAWS


def _goals(formula: Formula) -> Iterator[tuple[Goal, int]]:
    """Yield each goal and the number of worlds in which it is evaluated."""
    for node in subformulas(formula, nested=False):
        if isinstance(node, Regret):
            yield regret_goals(node)[1], 2
        elif isinstance(node, Goal):
            yield node, 1


def _parts(goal: Goal) -> int:
    """Return the number of obligations of a goal's measure, multiplied for takeovers that end and for decisions."""
    parts = _size(goal.measure)
    changes = goal.world.change, goal.world.baseline or NOMINAL
    lasting = max(max(change.steps or 0, change.limit or 0) for change in changes)
    tried = DECISIONS if any(change.decides for change in changes) else 1
    return parts * (1 + min(lasting, parts)) * tried


def _size(measure: Measure) -> int:
    """Return the number of obligations of a measure."""
    return measure.high + 1 if isinstance(measure, Reward) else _unfolded(measure.path)


def _unfolded(path: Formula) -> int:
    """Return the largest number of obligations of a path formula: one for each combination of remaining intervals."""
    if isinstance(path, Goal):
        return _parts(path)
    length = path.high + 1 if isinstance(path, Temporal) else 1
    return length * prod(map(_unfolded, children(path)))
