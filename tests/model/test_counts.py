"""Counts of a learned model: their checks, their file, and the probabilities they give."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ModelError
from monitor.model import MDP, read_model
from monitor.model.counts import Counts, posterior_mean
from monitor.model.npz import pack

STATES, ACTIONS, ELSEWHERE = 4, 2, 3


def learned(draws: list[tuple[int, int, int]], prior: float = 1.0) -> MDP:
    """Estimate a model from (state, action, successor) draws in their order, slowly and by definition."""
    rows: dict[tuple[int, int], list[int]] = {}
    for state, action, successor in draws:
        rows.setdefault((state, action), []).append(successor)
    order = list(rows)
    indptr, successors, probabilities, visits, since = [0], [], [], [], []
    for state in range(STATES):
        for action in range(ACTIONS):
            seen = rows.get((state, action), [])
            for target in sorted(set(seen)):
                successors.append(target)
                visits.append(seen.count(target))
                since.append(len(seen) - 1 - seen.index(target))
                mean = (seen.count(target) + Fraction(prior) / len(set(seen))) / (len(seen) + Fraction(prior))
                probabilities.append(float(mean))
            if not seen:
                successors.append(ELSEWHERE)
                visits.append(0)
                since.append(0)
                probabilities.append(1.0)
            indptr.append(len(successors))
    ranks = [order.index((s, a)) + 1 if (s, a) in rows else 0 for s in range(STATES) for a in range(ACTIONS)]
    counts = Counts(np.array(visits), np.array(since), np.array(ranks), ELSEWHERE, prior)
    return MDP.from_rows(
        states=STATES,
        actions=ACTIONS,
        indptr=np.array(indptr),
        successors=np.array(successors),
        probabilities=np.array(probabilities),
        labels={"elsewhere": [ELSEWHERE]},
        counts=counts,
    )


DRAWS = [(0, 0, 1), (0, 0, 2), (0, 0, 1), (1, 1, 0), (0, 0, 0), (2, 0, 2)]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=60),
    st.sampled_from([1.0, 0.5, 3.0]),
)
def test_counts_of_any_draws_are_accepted_and_survive_the_file(draws: list[tuple[int, int, int]], prior: float) -> None:
    model = learned(draws, prior)
    again = read_model(pack(model, zipfile.ZIP_DEFLATED), "test")
    assert model.counts is not None
    assert again.counts is not None
    for name in ("visits", "since", "order"):
        assert np.array_equal(getattr(again.counts, name), getattr(model.counts, name))
        assert not getattr(again.counts, name).flags.writeable
    assert (again.counts.elsewhere, again.counts.prior) == (ELSEWHERE, prior)
    assert again.counts.draws(again.indptr).sum() == len(draws)


def test_a_model_without_counts_has_none() -> None:
    model = replace(learned(DRAWS), counts=None)
    assert read_model(pack(model, zipfile.ZIP_STORED), "test").counts is None


def test_the_posterior_mean_of_no_entries() -> None:
    assert posterior_mean(np.zeros(0, np.int64), np.zeros(3, np.int64), 1.0).shape == (0,)


def test_an_ended_episode_makes_its_rows_given() -> None:
    model = learned(DRAWS)
    ended = model.with_absorbing(0)
    assert ended.counts is not None
    assert ended.counts.order[:2].tolist() == [0, 0]
    assert len(ended.counts.visits) == len(ended.successors) == len(ended.counts.since)
    again = read_model(pack(ended, zipfile.ZIP_STORED), "test")
    assert again.counts is not None
    assert again.counts.draws(again.indptr).tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


def change(**values: Any) -> MDP:  # noqa: ANN401 - any field
    model = learned(DRAWS)
    assert model.counts is not None
    return rebuilt(model, replace(model.counts, **values))


def rebuilt(model: MDP, counts: Counts, **values: Any) -> MDP:  # noqa: ANN401 - any field
    rows = {"indptr": model.indptr, "successors": model.successors, "probabilities": model.probabilities}
    return MDP.from_rows(states=STATES, actions=ACTIONS, counts=counts, **(rows | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"visits": np.ones(3, np.int64)}, "visits has 3 entries, not 10"),
        ({"visits": np.full(10, -1)}, "visits -1"),
        ({"order": np.zeros(3, np.int64)}, "row_order has 3 entries, not 8"),
        ({"order": np.zeros(8, np.int64)}, r"\(state 0, action 0\) has counts but row_order 0"),
        ({"order": np.array([1, 0, 0, 1, 3, 0, 0, 0])}, "gives two rows the same rank"),
        ({"order": np.array([1, 4, 0, 2, 3, 0, 0, 0])}, r"\(state 0, action 1\) has an entry that was never visited"),
        ({"elsewhere": 9}, "elsewhere 9"),
        ({"elsewhere": 0}, "elsewhere is state 0 of 4, which is not absorbing"),
        ({"prior": 0.0}, "prior is 0.0"),
        ({"prior": float("nan")}, "prior is nan"),
        ({"prior": 2.0}, "is not the posterior mean"),
    ],
)
def test_counts_that_do_not_fit_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        change(**values)


@pytest.mark.parametrize(
    ("since", "message"),
    [
        ([0, 3, 4], "more draws since an outcome was seen than draws"),
        ([0, 0, 2], "more visits than draws since"),
        ([0, 2, 2], "that no order of draws gives"),
        ([0, 2, 1], "that no order of draws gives"),
    ],
)
def test_an_impossible_order_of_draws_is_refused(since: list[int], message: str) -> None:
    model = learned(DRAWS)
    assert model.counts is not None
    assert model.counts.since[:3].tolist() == [0, 3, 2]
    with pytest.raises(ModelError, match=message):
        change(since=np.concatenate([since, model.counts.since[3:]]))


def test_rows_out_of_order_are_refused() -> None:
    model = learned(DRAWS)
    assert model.counts is not None
    successors = model.successors.copy()
    successors[:3] = [2, 1, 0]
    with pytest.raises(ModelError, match="needs its rows sorted"):
        rebuilt(model, model.counts, successors=successors)


def test_a_file_with_some_of_the_counts_is_refused() -> None:
    model = learned(DRAWS)
    content = pack(model, zipfile.ZIP_STORED)

    arrays = dict(np.load(io.BytesIO(content)))
    del arrays["since"]
    with pytest.raises(ModelError, match="it has 'visits' but not 'since'"):
        read_model(pack(arrays, zipfile.ZIP_STORED), "test")
