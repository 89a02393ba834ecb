"""Models drawn from the posterior of a learned model, with a separate weight for successors that were never observed.

Each learned row is drawn from a Dirichlet distribution. Its entries are the observed successors, whose proportions have
the model's row as their mean, and `elsewhere`, which stands for all other successors. The weight of `elsewhere` follows
from how often rows with a similar number of records discovered a new successor. For this, the draws of all rows are
pooled by their number within their row. So if rows have many successors, a row drawn three times gives much probability
to unseen successors. If no row has shown a second successor, it gives next to none. Nothing is known about the state
`elsewhere`, so each draw gives two models, for the worst and for the best case (`monitor.exact.sides`). See
docs/semantics/learned-models.md, section 13.5.

Learned emissions are drawn in the same way. All observations are known, so an observation that was not recorded in a
state is one of the observations recorded in other states. So observations need no `elsewhere`
(docs/semantics/hidden.md, section 16.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.model.counts import Counts, EmissionCounts, row_totals
from monitor.model.emissions import Emissions
from monitor.model.sparse_rows import frozen

RATE = 0.5
"""Both parameters of the Beta prior of a rate of discovery."""
LEAST = 1e-100
"""Minimum mass of an entry before a row is normalised, so that every entry stays possible."""


def opened(model: MDP) -> MDP:
    """Return the model with an entry for `elsewhere`, of probability 0, in each learned row.

    A given model is unchanged.
    """
    counts = model.counts
    if counts is None:
        return model
    rows, entries = np.flatnonzero(counts.order > 0), _keys(model)
    added = np.setdiff1d(rows * model.states + counts.elsewhere, entries)
    places = np.searchsorted(entries, added)
    sizes = np.diff(model.indptr) + np.bincount(added // model.states, minlength=len(model.indptr) - 1)
    extra = model.transition_rewards
    return replace(
        model,
        indptr=frozen(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])),
        successors=frozen(np.insert(model.successors, places, counts.elsewhere)),
        probabilities=frozen(np.insert(model.probabilities, places, 0.0)),
        transition_rewards=None if extra is None else frozen(np.insert(extra, places, 0.0)),
        reward_spread=None,
        counts=None,
    )


def _keys(model: MDP) -> Ints:
    """Return a key for each entry [N], computed from its row and its successor. Keys ascend."""
    keys: Ints = np.repeat(np.arange(len(model.indptr) - 1), np.diff(model.indptr)) * model.states + model.successors
    return keys


def drawn_probabilities(model: MDP, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield probabilities of the entries of `opened(model)`, drawn from the posterior, without end."""
    wide, counts = opened(model), model.counts
    if counts is None:
        while True:
            yield wide.probabilities
    rows, entries = np.flatnonzero(counts.order > 0), _keys(wide)
    unseen = np.searchsorted(entries, rows * model.states + counts.elsewhere)
    weights = np.zeros(len(entries))
    weights[np.searchsorted(entries, _keys(model))] = _shapes(counts, model.indptr)
    learned = np.repeat(counts.order > 0, np.diff(wide.indptr))
    of = np.repeat(np.arange(len(rows)), np.diff(wide.indptr)[rows])
    for shape in _drawn_shapes(counts, model.indptr, weights, (unseen, np.arange(len(rows))), rng):
        probabilities = wide.probabilities.copy()
        probabilities[learned] = _drawn_rows(shape[learned], of, rng)
        yield frozen(probabilities)


def drawn_emissions(emissions: Emissions | None, rng: np.random.Generator) -> Iterator[Emissions | None]:
    """Yield emissions drawn from the posterior, without end; the given ones if they were not learned.

    A state in which something was recorded may show every observation that was recorded in any state.
    """
    counts = None if emissions is None else emissions.counts
    if emissions is None or counts is None:
        while True:
            yield emissions
    states, signals = len(emissions.indptr) - 1, emissions.signals
    own = np.repeat(np.arange(states), np.diff(emissions.indptr)) * signals + emissions.observed
    rows = np.flatnonzero(row_totals(counts.visits, emissions.indptr) > 0)
    recorded = np.unique(emissions.observed[counts.visits > 0])
    entries = np.union1d(own, (rows[:, None] * signals + recorded).reshape(-1))
    unseen = np.flatnonzero(~np.isin(entries, own))
    of = entries // signals
    weights = np.zeros(len(entries))
    weights[np.searchsorted(entries, own)] = _shapes(counts, emissions.indptr)
    indptr = frozen(np.searchsorted(of, np.arange(states + 1)))
    wide = replace(emissions, indptr=indptr, observed=frozen(entries % signals), counts=None)
    beyond = unseen, np.searchsorted(rows, of[unseen])
    for shape in _drawn_shapes(counts, emissions.indptr, weights, beyond, rng):
        yield replace(wide, probabilities=frozen(_drawn_rows(shape, of, rng)))


def _shapes(counts: Counts | EmissionCounts, indptr: Ints) -> Floats:
    """Return the Dirichlet parameter of each observed entry [N]."""
    sizes = np.diff(indptr)
    shapes: Floats = counts.visits + counts.prior / np.repeat(sizes, sizes)
    return shapes


def _drawn_shapes(
    counts: Counts | EmissionCounts,
    indptr: Ints,
    weights: Floats,
    beyond: tuple[Ints, Ints],
    rng: np.random.Generator,
) -> Iterator[Floats]:
    """Yield Dirichlet parameters [M] for drawn rates of discovery, without end.

    `weights` [M]: the parameters of observed entries. `beyond`: the other entries [U] and, for each, the number of its
    row among the rows with records; the entries of a row share its parameter for unseen outcomes equally.
    """
    known, (unseen, of) = discoveries(counts, indptr), beyond
    draws = row_totals(counts.visits, indptr)
    totals = draws[draws > 0] + counts.prior
    shared = np.bincount(of, minlength=len(totals))[of]
    while True:
        rates = rng.beta(RATE + known.found, RATE + known.draws - known.found).clip(LEAST, 1.0 - 1e-12)[known.of_row]
        shape = weights.copy()
        shape[unseen] += (totals * rates / (1.0 - rates))[of] / shared
        yield shape


def _drawn_rows(shape: Floats, of: Ints, rng: np.random.Generator) -> Floats:
    """Return rows drawn from Dirichlet distributions; `of`: the row of each entry, from 0."""
    masses = np.maximum(rng.standard_gamma(shape), LEAST)
    rows: Floats = masses / np.bincount(of, masses)[of]
    return rows


class Discoveries(NamedTuple):
    """Discoveries by class of draws: class j has the draws with numbers 2**j + 1 to 2**(j + 1) of each row.

    `found`, `draws` [J]: numbers of discoveries and of draws in the classes j and j - 1 together. `of_row` [R]: class
    of the next draw of each learned row, in ascending order of rows.
    """

    found: Ints
    draws: Ints
    of_row: Ints


def discoveries(counts: Counts | EmissionCounts, indptr: Ints) -> Discoveries:
    """Return the discoveries of learned rows. First draws are left out: they always discover an outcome."""
    lengths = row_totals(counts.visits, indptr)
    rows = np.flatnonzero(lengths)
    of_row = _class(lengths[rows])
    classes = int(of_row.max(initial=0)) + 1
    of_entry = np.repeat(np.arange(len(lengths)), np.diff(indptr))
    numbers = lengths[of_entry] - counts.since  # of the draw that discovered the entry, from 1
    later = numbers[(lengths[of_entry] > 0) & (numbers > 1)]
    found = np.bincount(_class(later - 1), minlength=classes)
    starts = np.left_shift(1, np.arange(classes))
    draws = np.array([np.clip(lengths[rows] - start, 0, start).sum() for start in starts], dtype=np.int64)
    return Discoveries(_with_previous(found), _with_previous(draws), of_row)


def _class(draws: Ints) -> Ints:
    """Return the class [n] of the next draw after `draws` [n] draws, each at least 1."""
    exponents: Ints = np.frexp(draws.astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _with_previous(values: Ints) -> Ints:
    pooled: Ints = values + np.concatenate([[0], values[:-1]])
    return pooled
