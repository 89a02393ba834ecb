"""Nested quantities at @t, t != 0, against an enumeration of every counterfactual path.

The inner question is asked of `check` as a question of its own: its path is the counterfactual path so far, and its
nominal the policy that rules the outer world. That is the definition (docs/semantics/formulas.md, section 5.6), with
nothing carried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import monitor.exact.history as history_module
from monitor.causal import counterfactual_row
from monitor.errors import LimitError
from monitor.evaluation import check
from monitor.model import MDP
from tests.tiers import first

Pairs = tuple[tuple[int, int], ...]


def random_model(seed: int, states: int = 3, actions: int = 2) -> MDP:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(states), size=(states, actions)) * (rng.random((states, actions, states)) < 0.7)
    rows[..., 0] += 0.1
    rows /= rows.sum(axis=-1, keepdims=True)
    transitions = [
        (s, a, t, float(rows[s, a, t]))
        for s in range(states)
        for a in range(actions)
        for t in range(states)
        if rows[s, a, t] > 0
    ]
    labels = {"a": [0], "b": [1, 2]}
    return MDP.from_transitions(states=states, actions=actions, transitions=transitions, labels=labels)


def random_path(model: MDP, policy: Sequence[int], length: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    state, pairs = 0, []
    for _ in range(length):
        pairs.append((state, int(policy[state])))
        successors, weights = model.row(*pairs[-1])
        state = int(rng.choice(successors, p=weights))
    return tuple(pairs)


def counterfactual_paths(
    model: MDP, policy: Sequence[int], observed: Pairs, length: int
) -> Iterator[tuple[Pairs, float]]:
    """Every path of `length` pairs under `policy` from the start of `observed`, with its probability given it."""

    def extend(path: Pairs, weight: float) -> Iterator[tuple[Pairs, float]]:
        if len(path) == length:
            yield path, weight
            return
        successors, row = model.row(*path[-1])
        k = len(path) - 1
        if k < len(observed) - 1:
            row = counterfactual_row(model.row(*observed[k]), observed[k + 1][0], (successors, row))
        for state, probability in zip(successors.tolist(), row.tolist(), strict=True):
            if probability > 0:
                yield from extend((*path, (state, policy[state])), weight * probability)

    start = observed[0][0]
    yield from extend(((start, policy[start]),), 1.0)


@pytest.mark.parametrize("seed", first(3, range(12)))
@pytest.mark.parametrize("t", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize("inner", ["third", "delta(third,nominal)", "nominal"])
def test_nested_at_t_follows_the_definition(seed: int, t: int, inner: str) -> None:
    model = random_model(seed)
    rng = np.random.default_rng(1000 + seed)
    nominal, alt, third = (rng.integers(0, 2, 3).tolist() for _ in range(3))
    observed = random_path(model, nominal, 3, seed)
    comparison = "P>0" if inner.startswith("delta") else "P>0.55"
    text = f'{inner}@{t}.{comparison} [ F<=2 "b" ]'
    policies = {"nominal": nominal, "alt": alt, "third": third}
    exact = check(f'alt@2.P=? [ F[1,3] ("a" & {text}) ]', model=model, path=observed, policies=policies).value

    inside = {"nominal": alt, "alt": alt, "third": third}
    expected = 0.0
    for path, weight in counterfactual_paths(model, alt, observed, 4):
        holds = [
            path[k][0] == 0 and check(text, model=model, path=path[: k + 1], policies=inside).holds for k in (1, 2, 3)
        ]
        expected += weight * any(holds)
    assert exact == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("causal_model", ["any", "stable"])
@pytest.mark.parametrize("t", [1, -1])
def test_bounds_of_a_query_that_looks_back_contain_its_value(t: int, causal_model: str) -> None:
    wide = 0
    for seed in range(20):
        model = random_model(seed)
        rng = np.random.default_rng(2000 + seed)
        policies = {name: rng.integers(0, 2, 3).tolist() for name in ("nominal", "alt", "third")}
        observed = random_path(model, policies["nominal"], 3, seed)
        text = f'alt@2.P=? [ F[1,3] ("a" & third@{t}.P>0.55 [ F<=2 "b" ]) ]'
        verdict = check(text, model=model, path=observed, policies=policies, causal_model=causal_model)  # type: ignore[arg-type]  # parametrised
        assert verdict.value is not None
        assert verdict.bounds is not None
        low, high = verdict.bounds
        assert low - 1e-12 <= verdict.value <= high + 1e-12
        wide += high - low > 1e-9
    assert wide > 0, "the bounds must leave some freedom, or they show nothing"


def test_too_many_histories_are_refused_with_what_how_large_and_which_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 50)
    model = random_model(0)
    policies = {"nominal": [0, 0, 0], "alt": [1, 1, 1]}
    text = 'alt@0.P=? [ F<=9 nominal@-1.P>0.999 [ G<=4 "a" ] ]'
    with pytest.raises(LimitError, match=r"looks back 1 steps.*more than 50.*MAX_HISTORIES.*shorten"):
        check(text, model=model, path=[(0, 0)], policies=policies)


def test_a_refusal_does_not_first_build_what_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four histories, then 4 x 64: the second of them is too much already."""
    monkeypatch.setattr(history_module, "MAX_HISTORIES", 50)
    fan = [(0, 0, s, 0.25) for s in range(1, 5)] + [(s, 0, t, 1 / 64) for s in range(1, 65) for t in range(1, 65)]
    model = MDP.from_transitions(states=65, actions=1, transitions=fan, labels={"a": [1]})
    looked_from: list[int] = []
    successors = history_module.HistoryChain._successors  # noqa: SLF001 - what is looked at before a refusal

    def counted(chain: history_module.HistoryChain, cell: history_module._Cell, offset: int) -> set[object]:
        looked_from.append(cell.state)
        return set(successors(chain, cell, offset))

    monkeypatch.setattr(history_module.HistoryChain, "_successors", counted)
    with pytest.raises(LimitError, match="MAX_HISTORIES"):
        check('P=? [ F<=9 @-1.P>0.999 [ G<=4 "a" ] ]', model=model, path=[(0, 0)], policies={"nominal": [0] * 65})
    assert len(looked_from) == 2
