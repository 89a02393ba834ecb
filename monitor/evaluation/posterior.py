"""Models drawn from the posterior of a learned model, with a separate weight for successors that were never observed.

Each learned row is drawn from a Dirichlet distribution. Its entries are the observed successors, whose proportions have
the model's row as their mean, and `elsewhere`, which stands for all other successors. The weight of `elsewhere` follows
from how often rows with as many records discovered a new successor; for this, the draws of all rows are pooled by their
number within their row. So a row drawn three times gives much probability to unseen successors if rows have many
successors, and next to nothing if no row ever showed a second successor. Nothing is known about the state `elsewhere`,
so each draw is two models, of the worst and of the best case (`monitor.exact.sides`). See docs/semantics.md, section
13.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model import MDP
from monitor.model.counts import Counts
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
    """Return a key for each entry [N], which its row and its successor determine. Keys ascend."""
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
    seen = np.searchsorted(entries, _keys(model))
    sizes = np.diff(model.indptr)
    weights = np.zeros(len(entries))
    weights[seen] = counts.visits + counts.prior / np.repeat(sizes, sizes)
    learned = np.repeat(counts.order > 0, np.diff(wide.indptr))
    of = np.repeat(np.arange(len(rows)), np.diff(wide.indptr)[rows])
    known = discoveries(counts, model.indptr)
    totals = counts.draws(model.indptr)[rows] + counts.prior
    while True:
        rates = rng.beta(RATE + known.found, RATE + known.draws - known.found).clip(LEAST, 1.0 - 1e-12)[known.of_row]
        shape = weights.copy()
        shape[unseen] += totals * rates / (1.0 - rates)
        masses = np.maximum(rng.standard_gamma(shape[learned]), LEAST)
        probabilities = wide.probabilities.copy()
        probabilities[learned] = masses / np.bincount(of, masses, len(rows))[of]
        yield frozen(probabilities)


class Discoveries(NamedTuple):
    """Discoveries by class of draws: class j has the draws with numbers 2**j + 1 to 2**(j + 1) of each row.

    `found`, `draws` [J]: numbers of discoveries and of draws in the classes j and j - 1 together. `of_row` [R]: class
    of the next draw of each learned row, in ascending order of rows.
    """

    found: Ints
    draws: Ints
    of_row: Ints


def discoveries(counts: Counts, indptr: Ints) -> Discoveries:
    """Return the discoveries of a learned model. First draws are left out: they always discover a successor."""
    rows = np.flatnonzero(counts.order > 0)
    lengths = counts.draws(indptr)
    of_row = _class(lengths[rows])
    classes = int(of_row.max(initial=0)) + 1
    of_entry = np.repeat(np.arange(len(lengths)), np.diff(indptr))
    numbers = lengths[of_entry] - counts.since  # of the draw that discovered the entry, from 1
    later = numbers[(counts.order[of_entry] > 0) & (numbers > 1)]
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
