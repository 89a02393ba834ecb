"""Rows kept from path to path: the answers on growing paths do not depend on how many are kept."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import MDP, Checker, PolicyTable, parse
from monitor.exact.best import posteriors, values

FORMULAS = [parse(f'{word}@3.P>=0.5 [ G<=4 !"bad" ]') for word in ("best", "best[1]", "best[<=1]", "best[<=2]")]


def world(seed: int) -> tuple[MDP, dict[str, PolicyTable], list[tuple[int, int]]]:
    """Twelve states, three actions, and a path of 12 pairs, some of whose transitions recur."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.full(4, 0.5), (12, 3))
    after = np.argsort(random.random((12, 3, 12)))[..., :4]
    model = MDP.from_transitions(
        states=12,
        actions=3,
        transitions=[
            (s, a, int(t), float(p)) for s, a in np.ndindex(12, 3) for t, p in zip(after[s, a], rows[s, a], strict=True)
        ],
        labels={"bad": [5, 9]},
    )
    actions = random.integers(3, size=12)
    actions.setflags(write=False)
    path, state = [], 0
    for _ in range(12):
        path.append((state, int(actions[state])))
        state = int(random.choice(after[state, actions[state]], p=rows[state, actions[state]]))
    return model, {"nominal": PolicyTable(actions=actions)}, path


@pytest.mark.parametrize("seed", range(6))
def test_answers_do_not_depend_on_how_many_rows_are_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, path = world(seed)
    found = []
    for kept in (0, 1, 2, 16):
        monkeypatch.setattr(posteriors, "MOST", kept)
        checker = Checker(model, policies)
        found.append(
            [
                checker.check(formula, path[begin:end]).quantities[0].value
                for begin in (0, 5, 0)
                for end in range(begin + 4, len(path) + 1)
                for formula in FORMULAS
            ]
        )
    assert len(set(found[0])) > 5
    assert found[1:] == found[:1] * 3


@pytest.mark.parametrize("seed", range(3))
def test_nor_on_what_is_kept_of_paths_of_one_length(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of many lengths, several times, some of which another policy acted on or that have ended."""
    model, policies, path = world(seed)
    actions = policies["nominal"].actions
    assert actions is not None
    policies["other"] = PolicyTable(actions=np.roll(actions, 1))
    found = []
    for most, numbers in ((0, 0), (1, 1 << 16), (3, 1 << 16), (16, 1 << 16), (16, 300)):
        monkeypatch.setattr(values, "FRAMES", max(most, 1))
        monkeypatch.setattr(values, "FEW_NUMBERS", numbers)
        checker = Checker(model, policies)
        found.append(
            [
                checker.check(parse(f'best[<=2]@{end - 1}.P>=0.5 [ G<={end} !"bad" ]'), path[:end], **more)
                .quantities[0]
                .value
                for _ in range(2)
                for end in (2, 3, 5, 2, 8, 3)
                for more in ({}, {"terminated": True}, {"acted": ["nominal"] * (end - 2) + ["other"] * 2})
            ]
        )
    assert len(set(found[0])) > 3
    assert found[1:] == found[:1] * 4


def test_frames_are_few_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policies, path = world(1)
    kept: list[values.BestValues] = []
    begin = values.BestValues.__init__

    def note(self: values.BestValues, *of: object) -> None:
        kept.append(self)
        begin(self, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(values.BestValues, "__init__", note)
    monkeypatch.setattr(values, "FRAMES", 6)
    checker = Checker(model, policies)
    for end in range(2, 12):
        checker.check(parse('best[<=2]@1.P>=0.5 [ G<=30 !"bad" ]'), path[:end])
        checker.check(parse(f'best[<=2]@{end - 1}.P>=0.5 [ G<=30 !"bad" ]'), path[:end])
    [frames] = [each._frames for each in kept if each._frames]  # noqa: SLF001 - memory, which no answer shows
    assert len(frames) == values.FRAMES
    assert all(frame.plan.policy.size <= values.FEW_NUMBERS for frame in frames.values())
    monkeypatch.setattr(values, "FEW_NUMBERS", 0)
    other = Checker(model, policies)
    other.check(parse('best[<=2]@1.P>=0.5 [ G<=30 !"bad" ]'), path)
    assert kept[-1]._frames == {}  # noqa: SLF001 - likewise
