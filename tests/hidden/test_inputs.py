"""What is refused where states are hidden or policies remember, and what a model file keeps of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.model import model_sha256
from monitor.model.emissions import Emissions
from monitor.policy.controller import Controller, Policy
from tests.hidden.files import write_controller, write_network

ROWS = [(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 0, 1.0), (1, 0, 1, 1.0), (1, 1, 0, 0.25), (1, 1, 1, 0.75)]
SHOWN = [(0, 0, 0.8), (0, 1, 0.2), (1, 1, 1.0)]


def model(**changed: Any) -> monitor.MDP:  # noqa: ANN401 - arguments of from_transitions
    about = {"initial": {0: 1.0}, "signals": 2, "emissions": SHOWN, **changed}
    return monitor.MDP.from_transitions(states=2, actions=2, transitions=ROWS, labels={"bad": [1]}, **about)


def ask(query: str, *, path: Any = ((0, 0), (1, 0)), **changed: Any) -> monitor.Verdict:  # noqa: ANN401
    about = {"model": model(), "policies": {"nominal": [0, 1], "other": Policy([1, 1])}, **changed}
    return monitor.check(query, path=path, **about)


@pytest.mark.parametrize(
    ("emissions", "why"),
    [
        ([(0, 0, 1.0)], "the emissions of state 1 sum to 0, not 1"),
        ([(0, 0, 0.5), (1, 0, 1.0)], "the emissions of state 0 sum to 0.5, not 1"),
        ([(0, 2, 1.0), (1, 0, 1.0)], r"emission: observation 2 \(entry 0\) is outside 0..1"),
        ([(0, 0, 2.0), (0, 1, -1.0), (1, 0, 1.0)], "the probability -1 is negative"),
        ([(0, 0), (1, 0)], "every entry needs 3 fields"),
    ],
)
def test_emissions_that_are_none(emissions: list[tuple[Any, ...]], why: str) -> None:
    with pytest.raises(monitor.ModelError, match=why):
        model(emissions=emissions)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ('"bad"', r'ask how likely it is: P>=0.9 \[ "bad" \]'),
        ("P=? [ F<=2 (P>=0.5 [ X true ]) ]", "a nested quantity is a value of the hidden state"),
        ('handover(other, P>=0.5 [ G<=2 !"bad" ], 3)', "a nested quantity"),
        ('max@1.P=? [ F<=2 "bad" ]', "need a state that is seen"),
        ('P=? [ F<=2 "worse" ]', "unknown label 'worse'; did you mean|there is bad"),
    ],
)
def test_formulas_that_hidden_states_do_not_offer(query: str, why: str) -> None:
    with pytest.raises(monitor.FormulaError, match=why):
        ask(query)


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        ({"model": model(initial=None)}, monitor.ConfigError, "needs `initial`"),
        ({"policies": {"other": [0, 1]}}, monitor.ConfigError, "no policy is called 'nominal'"),
        ({"policies": {"nominal": [0, 2]}}, monitor.PolicyError, "policy 'nominal': .*outside 0..1"),
        ({"policies": {"nominal": [0, 0, 0]}}, monitor.PolicyError, r"not \[2\] or \[2, 2\]"),
        (
            {"policies": {"nominal": Policy([0, 1], sees="nothing")}},  # type: ignore[arg-type]
            monitor.PolicyError,
            "use observation, state",
        ),
        (
            {"policies": {"nominal": Controller([[[1, 0]] * 2], [[0, 1]])}},
            monitor.PolicyError,
            "outside the memories 0..0",
        ),
        (
            {"policies": {"nominal": Controller([[[1, 0]] * 2], [[0, 0]], memory="forgets")}},  # type: ignore[arg-type]
            monitor.PolicyError,
            "memory 'forgets': use shadow, reset",
        ),
        ({"policies": {"nominal": Controller([[[1, 0]] * 2], [0, 0])}}, monitor.PolicyError, "next has shape"),
        ({"policies": {"nominal": [[0.5, 0.6], [1.0, 0.0]]}}, monitor.PolicyError, "must be distributions"),
        ({"policies": {"nominal": [[1], [1, 2]]}}, monitor.PolicyError, "is no table of numbers"),
        ({"path": ((0, 0), (2, 0))}, monitor.PathError, "pair 1: observation 2 is outside 0..1"),
        ({"path": ((0, 0), (1, 3))}, monitor.PathError, "pair 1: action 3 is outside 0..1"),
        ({"path": ()}, monitor.PathError, "the path is empty"),
        ({"path": ((0, 0, 0),)}, monitor.PathError, r"pair 0: a pair \(observation, action\)"),
        ({"engine": "sampled"}, monitor.ConfigError, "answers are exact"),
        ({"causal_model": "stable"}, monitor.ConfigError, "use causal_model: any"),
    ],
)
def test_inputs_that_are_refused(changed: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        ask('P=? [ F<=2 "bad" ]', **changed)


def test_an_impossible_observation_is_an_error_of_the_path() -> None:
    sure = model(emissions=[(0, 0, 1.0), (1, 1, 1.0)])
    with pytest.raises(monitor.PathError, match="pair 1: observation 1 with action 0 is impossible"):
        ask('P=? [ F<=2 "bad" ]', model=sure, path=((0, 1), (1, 0)))


def test_an_action_that_the_policy_takes_nowhere_says_nothing() -> None:
    seeing = {"nominal": Policy([0, 0], sees="state")}
    silent = ask('P=? [ "bad" ]', policies=seeing, path=((0, 1), (1, None)))
    assert silent.value == ask('P=? [ "bad" ]', policies={"nominal": [1, 1]}, path=((0, 1), (1, None))).value


def test_a_table_of_the_states_is_a_policy_that_sees_them() -> None:
    table = monitor.PolicyTable(actions=np.array([1, 0]))
    seen = ask('P=? [ F<=2 "bad" ]', policies={"nominal": table}, path=((0, 1), (1, None)))
    assert (
        seen.value
        == ask('P=? [ F<=2 "bad" ]', policies={"nominal": Policy([1, 0], "state")}, path=((0, 1), (1, None))).value
    )


def test_a_policy_may_not_take_what_is_unavailable_where_it_may_be() -> None:
    only_there = monitor.MDP.from_transitions(
        states=2, actions=2, transitions=[row for row in ROWS if row[:2] != (1, 1)], labels={"bad": [1]},
        initial={0: 1.0}, signals=2, emissions=SHOWN,
    )  # fmt: skip
    with pytest.raises(monitor.PolicyError, match="state 1 may be seen as 1, where the policy takes an action"):
        ask('P=? [ F<=2 "bad" ]', model=only_there)


def test_policies_in_files_see_observations_unless_they_say_otherwise(tmp_path: Path) -> None:
    write_network(tmp_path / "nominal.yaml", [0, 1])
    write_network(tmp_path / "seeing.yaml", [0, 1], sees="state")
    write_controller(tmp_path / "wary.yaml", choice=[[[1, 0], [1, 0]], [[0, 1], [0, 1]]], next=[[0, 1], [1, 1]])
    names = "nominal", "seeing", "wary"
    files = {name: str(tmp_path / f"{name}.yaml") for name in names}
    tables = dict(
        zip(
            names,
            ([0, 1], Policy([0, 1], sees="state"), Controller([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 1], [1, 1]])),
            strict=True,
        )
    )
    for name in names:
        query = f'{name}@1.P=? [ F<=2 "bad" ]'
        assert ask(query, policies=files).value == ask(query, policies=tables).value


def test_a_file_is_no_table_of_states_where_they_are_hidden(tmp_path: Path) -> None:
    write_network(tmp_path / "nominal.yaml", [0, 1])
    with pytest.raises(monitor.PolicyError, match="where states are hidden a policy is no table of states"):
        monitor.load_policy(tmp_path / "nominal.yaml", model())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "is no JSON of `choice` and `next`"),
        (b'{"choice": [[[1, 0]]]}', "is no JSON of `choice` and `next`"),
        (b'{"choice": [[[1, 0], [1, 0]]], "next": [[0]]}', "next has shape"),
    ],
)
def test_files_of_controllers_that_are_none(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "wary.json").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "wary.yaml").write_text(f"kind: controller\nfile: wary.json\nsha256: {sha256}\n")
    with pytest.raises(monitor.PolicyError, match=f"policy .*wary.yaml: .*{why}"):
        ask('P=? [ F<=2 "bad" ]', policies={"nominal": str(tmp_path / "wary.yaml")})


def test_emissions_of_another_model_are_none_of_this_one() -> None:
    hidden = model(signals=np.int64(2))
    about = {name: getattr(hidden, name) for name in ("states", "actions", "indptr", "successors", "probabilities")}
    assert monitor.MDP.from_rows(**about, emissions=hidden.emissions).emissions is hidden.emissions
    three = Emissions.of_states(2, np.array([0, 1, 1]))
    with pytest.raises(monitor.ModelError, match="the emissions are of 3 states, and the model has 2"):
        monitor.MDP.from_rows(**about, emissions=three)
    with pytest.raises(monitor.ModelError, match="emissions are list, not Emissions: from_transitions takes tuples"):
        monitor.MDP.from_rows(**about, emissions=SHOWN)  # type: ignore[arg-type]


@pytest.mark.parametrize("half", [{"signals": None}, {"emissions": None}])
def test_signals_and_emissions_belong_together(half: dict[str, Any]) -> None:
    with pytest.raises(monitor.ModelError, match="hidden states need both, and states that are seen neither"):
        model(**half)


def test_another_model_has_the_labels_and_emissions_of_the_main_one() -> None:
    rows = [(s, a, 1 - s, 1.0) for s in range(2) for a in range(2)]
    bare = monitor.MDP.from_transitions(states=2, actions=2, transitions=rows, labels={"bad": []})
    asked = {"path": ((0, 1), (1, None)), "policies": {"nominal": [0, 1]}}
    alone = ask('P=? [ X "bad" ]', model=monitor.MDP.from_transitions(
        states=2, actions=2, transitions=rows, labels={"bad": [1]}, initial={0: 1.0}, signals=2, emissions=SHOWN
    ), path=((0, None),), policies=asked["policies"])  # fmt: skip
    assert ask('model:other@0.P=? [ X "bad" ]', models={"other": bare}, path=((0, None),)).value == alone.value == 1.0
    small = monitor.MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)])
    with pytest.raises(monitor.ConfigError, match="has 1 states"):
        ask('P=? [ X "bad" ]', models={"other": small})


def test_the_policies_that_acted_are_evidence() -> None:
    policies = {"nominal": Policy([0, 0], sees="state"), "other": Policy([0, 1], sees="state")}
    about = {"model": model(initial={0: 0.5, 1: 0.5}), "policies": policies, "path": ((None, 0), (None, None))}
    assert ask('P=? [ "bad" ]', **about).value == 0.75
    assert ask('P=? [ "bad" ]', **about, acted=["other", "nominal"]).value == 0.5  # it takes action 0 in state 0 only
    with pytest.raises(monitor.PathError, match="a policy that is not configured acted"):
        ask('P=? [ "bad" ]', policies=policies, acted=["", "nominal"])
    remembers = Controller([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 1], [1, 1]])
    with pytest.raises(monitor.PathError, match="several policies acted, and one of them remembers"):
        ask('P=? [ "bad" ]', policies={**policies, "other": remembers}, acted=["other", "nominal"])


def test_a_policy_that_remembers_is_not_handed_back() -> None:
    remembers = Controller([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 1], [1, 1]])
    with pytest.raises(monitor.FormulaError, match="takes over for good"):
        ask('other[2]@1.P=? [ F<=2 "bad" ]', policies={"nominal": [0, 1], "other": remembers})


def test_elsewhere_hidden_states_are_refused_not_taken_for_seen_ones() -> None:
    policies = {"nominal": [0, 1]}
    with pytest.raises(monitor.ConfigError, match="states are hidden"):
        monitor.values('P=? [ F<=2 "bad" ]', model=model(), policies=policies)


NAMED = {"signal_names": ["dry", "slippery"]}


def test_observations_may_have_names(tmp_path: Path) -> None:
    named = model(**NAMED)
    monitor.save_model(named, tmp_path / "named.npz")
    again = monitor.load_model(tmp_path / "named.npz")
    assert again.signal_names == ("dry", "slippery")
    assert model_sha256(again) == model_sha256(named) != model_sha256(model())
    by_name = ask('other@1.P=? [ F<=2 "bad" ]', model=again, path=[("dry", 0), ("slippery", 0), (None, 0)])
    assert by_name == ask('other@1.P=? [ F<=2 "bad" ]', path=[(0, 0), (1, 0), (None, 0)])
    with pytest.raises(monitor.PathError, match=r"pair 0: a pair \(observation, action\)"):
        ask('P=? [ "bad" ]', model=again, path=[("wet", 0)])
    sure = model(emissions=[(0, 0, 1.0), (1, 1, 1.0)], **NAMED)
    with pytest.raises(monitor.PathError, match="observation slippery with action 0 is impossible"):
        ask('P=? [ "bad" ]', model=sure, path=[("dry", 1), ("slippery", 0)])


@pytest.mark.parametrize(
    ("names", "why"),
    [(["dry"], "1 observation names for 2"), (["dry", "dry"], "given twice"), (["dry", 2], "a name is printable")],
)
def test_names_of_observations_that_are_none(names: list[Any], why: str) -> None:
    with pytest.raises(monitor.ModelError, match=why):
        model(signal_names=names)


def test_names_without_observations() -> None:
    with pytest.raises(monitor.ModelError, match="hidden states need signals too"):
        monitor.MDP.from_transitions(states=2, actions=2, transitions=ROWS, signal_names=["dry", "slippery"])


def test_a_model_file_keeps_what_states_show(tmp_path: Path) -> None:
    monitor.save_model(model(), tmp_path / "hidden.npz")
    emissions = monitor.load_model(tmp_path / "hidden.npz").emissions
    assert emissions is not None
    assert emissions.signals == 2
    for state in range(2):
        for one, other in zip(emissions.row(state), model().emissions.row(state), strict=True):  # type: ignore[union-attr]
            np.testing.assert_array_equal(one, other)
