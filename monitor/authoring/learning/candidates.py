"""Candidates of `--abstraction auto`: unchanged columns, bins and clusters, and the outcomes that compare them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Final

import numpy as np

from monitor.authoring.learning.abstraction import Numbering, chosen_kind
from monitor.authoring.learning.abstraction_scores import CandidateAbstraction
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.bins import NONE, BinSpec, Reservoir, edges_of, within
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.conditions import Condition
from monitor.authoring.learning.holdout import Holdout
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.outcomes import Outcomes
from monitor.authoring.learning.recorded_steps import Steps
from monitor.authoring.learning.sentinels import number_text
from monitor.authoring.learning.state_clusters import centres_of
from monitor.errors import ModelError, RecordingError

BINS: Final = (2, 3, 4, 6, 8, 12, 16)
"""The numbers of quantile bins of each column that are tried, one after another."""

CHANGES: Final = (8, 16)
"""The numbers of edges that are tried at places where the given policies change their choices."""

OTHERS: Final = (1, 2)
"""The numbers of quantile bins that are tried beside the edges of `CHANGES`, for each column without such an edge."""

CLUSTERS: Final = (8, 16, 32, 64, 128, 256)

MOST: Final = 20_000
"""Largest number of states of an abstraction. Larger abstractions are not tried, or are given up."""

KEPT: Final = 0.2
"""Fraction of the episodes that are not used to choose, because the chosen abstraction is judged on them."""

EACH: Final = 20
"""A number of clusters is tried only if the sample has at least this many rows for each cluster."""


def abstractions(
    first: RowBatch,
    columns: tuple[str, ...],
    sample: Reservoir,
    seed: int,
    *,
    also: Mapping[str, Collection[float]] = NONE,
    changes: Sequence[tuple[str, float]] = (),
) -> dict[str, Numbering]:
    """Return the abstractions to compare, each under the option that selects it.

    `first`: the first rows, with the columns of the state. `sample`: a sample of all rows. `also`: further edges of
    bins, as for `edges_of`. `changes`: columns and numbers at which given policies change their choice, the largest
    changes first. Clusters are tried only if all columns are numbers.
    """
    found: dict[str, Numbering] = {}
    try:
        kind = chosen_kind(first, columns, "state", "")
        seen = Numbering(kind, columns)
        seen.encode(first, columns)
        if seen.size <= MOST:
            found[f"--abstraction {kind}"] = Numbering(kind, columns)
    except RecordingError:
        pass  # the columns are continuous, so only bins and clusters are possible
    found |= _different(chain(_binned(columns, sample, also), _at_changes(columns, sample, also, changes)))
    if not sample.texts:
        found |= _different(_clustered(columns, sample, seed))
    return found


def fresh(numbering: Numbering) -> Numbering:
    """Return a numbering with the same settings, but without any rows counted."""
    return Numbering(numbering.kind, numbering.columns, numbering.edges, numbering.names, numbering.centres)


def _binned(
    columns: tuple[str, ...], sample: Reservoir, also: Mapping[str, Collection[float]]
) -> Iterator[tuple[str, Numbering]]:
    for count in BINS:
        edges = edges_of(columns, {"": BinSpec(count)}, sample, also)
        if np.prod([float(len(each) - 1) for each in edges]) <= MOST:
            yield f"--bins {count}q", Numbering("bins", columns, edges, sample.texts)


def _at_changes(
    columns: tuple[str, ...],
    sample: Reservoir,
    also: Mapping[str, Collection[float]],
    changes: Sequence[tuple[str, float]],
) -> Iterator[tuple[str, Numbering]]:
    """Yield bins with edges at the largest changes of choices, and quantile bins of the columns without such edges."""
    for count, others in product(CHANGES, OTHERS):
        cuts: dict[str, set[float]] = {}
        for name, edge in changes[:count]:
            i = columns.index(name)
            cuts.setdefault(name, set(within(also.get(name, ()), sample, i))).update(within([edge], sample, i))
        specs = {name: BinSpec(cuts=tuple(sorted(cuts[name]))) for name in columns if cuts.get(name)}
        if not specs:
            return
        edges = edges_of(columns, {"": BinSpec(others)} | specs, sample, also)
        if np.prod([float(len(each) - 1) for each in edges]) <= MOST:
            said = [f"{name}:{'|'.join(map(number_text, spec.cuts))}" for name, spec in specs.items()]
            yield f"--bins '{','.join([*said, f'{others}q'])}'", Numbering("bins", columns, edges, sample.texts)


def _clustered(columns: tuple[str, ...], sample: Reservoir, seed: int) -> Iterator[tuple[str, Numbering]]:
    for count in CLUSTERS:
        if count * EACH <= len(sample.rows):
            centres = centres_of(columns, count, sample, np.random.default_rng(seed))
            yield f"--abstraction kmeans:{count}", Numbering("nearest", columns, centres=centres)


def _different(given: Iterator[tuple[str, Numbering]]) -> dict[str, Numbering]:
    """Return the abstractions without repetitions. Different options may give the same bins if there are few values."""
    found: dict[str, Numbering] = {}
    known = set()
    for name, numbering in given:
        parts = numbering.edges if numbering.centres is None else (numbering.centres.points,)
        content = tuple(part.tobytes() for part in parts)
        if content not in known:
            found[name] = numbering
        known.add(content)
    return found


class Field:
    """Candidates that read the same rows. A candidate that fails is given up.

    Raises ModelError if there are no labels to forecast. Attributes: `candidates`: the remaining candidates.
    `outcomes`: the outcomes that compare them. `lost`: name -> why the candidate was given up.
    """

    def __init__(
        self,
        found: dict[str, Numbering],
        roles: Roles,
        conditions: Sequence[tuple[Condition, bool]],
        prior: float,
        seed: int,
    ) -> None:
        if not conditions:
            raise ModelError("--abstraction auto compares forecasts of labels; give --unsafe or --label")
        self.candidates = [
            CandidateAbstraction(name, Learner.new(roles, states, conditions, prior), Holdout(seed, begin=KEPT))
            for name, states in found.items()
        ]
        unsafe = np.array([unsafe for _, unsafe in conditions])
        self.outcomes = Outcomes(seed, unsafe, begin=KEPT, unmarked=roles.truncated is None)
        self.lost: dict[str, str] = {}

    def read(self, batch: RowBatch) -> None:
        """Count the rows of a batch for all candidates. If none remains, raise the error of the last candidate."""
        self._count(lambda learner: learner.read(batch))

    def end_file(self, after: RowBatch | None = None) -> None:
        """End a file, unless its episodes continue in the next file, whose first rows are `after`. Raises as `read`.

        All candidates read the same rows, so the first one tells whether episodes continue.
        """
        if not self.candidates[0].learner.goes_on(after):
            self._count(lambda learner: learner.end_file())

    def refuse_too_few(self, source: str) -> None:
        """Raise RecordingError if there is nothing to learn from, or nothing to forecast."""
        if len(self.outcomes.episodes()) == 0 or self.candidates[0].holdout.train.draws == 0:
            raise RecordingError(
                f"{source}: too few episodes to compare abstractions: some are learned from, and others are forecast. "
                "Cut a long recording, such as into days, by a column that differs between the parts (--episode), or "
                "choose the states yourself (--bins)"
            )

    def _count(self, read: Callable[[Learner], Steps | None]) -> None:
        taken = False
        for candidate in list(self.candidates):
            try:
                steps = read(candidate.learner)
                self._keep_small(candidate)
            except (ModelError, RecordingError) as error:
                self.lost[candidate.name] = str(error)
                self.candidates.remove(candidate)
                if not self.candidates:
                    raise
                continue
            if steps is None:
                continue
            candidate.holdout.add(steps)
            if not taken:
                self.outcomes.add(steps)
            taken = True

    def _keep_small(self, candidate: CandidateAbstraction) -> None:
        states = candidate.learner.states
        if states is not None and states.size > MOST:
            raise ModelError(
                f"{candidate.name}: more than {MOST:,} states; leave columns out (--state), use --bins, or compute "
                "states with FILE.py:FUNCTION"
            )
