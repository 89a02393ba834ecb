"""Malformed UMB, PRISM and DRN files: always ModelError, with the line where there is one, and little memory taken."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from monitor.authoring.formats.drn import read_drn
from monitor.authoring.formats.prism_explicit import read_prism
from monitor.authoring.formats.prism_write import prism_files
from monitor.authoring.formats.umb import read_umb
from monitor.authoring.formats.umb_write import umb_files
from monitor.errors import ModelError, ModelWarning
from monitor.model import MDP
from tests.model.verification_models import random_model

MEGABYTE = 1 << 20

TRA = "3 4 5\n0 0 1 0.5 go\n0 0 2 0.5 go\n0 1 0 1 stay\n1 0 1 1 stay\n2 0 2 1 stay\n"
GOOD = {
    ".tra": TRA,
    ".lab": '0="init" 1="deadlock" 2="goal"\n0: 0\n2: 2\n',
    ".srew": "3 1\n0 1.5\n",
    ".trew": "3 4 1\n0 0 1 2\n",
    ".sta": "(x,done)\n0:(0,false)\n1:(1,false)\n2:(-0.5,true)\n",
}


def prism(**changes: str | bytes) -> dict[str, bytes]:
    files = {**GOOD, **{f".{suffix}": text for suffix, text in changes.items()}}
    return {suffix: text if isinstance(text, bytes) else text.encode() for suffix, text in files.items()}


def test_good_explicit_files() -> None:
    model = read_prism(prism(), "m.tra")
    assert (model.states, model.action_names) == (3, ("go", "stay"))
    assert model.reward(0, 0, 1) == 3.5
    assert model.reward(0, 0, 2) == model.reward(0, 1, 0) == 1.5
    assert model.valuations == ((0.0, False), (1.0, False), (-0.5, True))
    assert model.state_names[2] == "x=-0.5, done=true"
    assert list(model.labels) == ["goal"]
    assert model.initial is not None
    assert model.initial.tolist() == [1, 0, 0]


def test_a_chain_is_a_model_with_one_action() -> None:
    files = {".tra": b"# a chain\n2 3\n0 0 1/3\n0 1 2/3\n\n1 1 1.0 tick\n", ".trew": b"2 1\n0 1 4\n"}
    model = read_prism(files, "m.tra")
    assert (model.states, model.actions, model.action_names) == (2, 1, ())
    assert model.row(0, 0)[1].tolist() == [1 / 3, 2 / 3]
    assert model.reward(0, 0, 1) == 4


def test_labels_of_storm_and_a_deadlock_that_holds() -> None:
    storm = read_prism(prism(lab="#DECLARATION\ninit deadlock goal\n#END\n0 init\n1 deadlock goal\n"), "m.tra")
    assert {name: states.tolist() for name, states in storm.labels.items()} == {
        "deadlock": [False, True, False],
        "goal": [False, True, False],
    }


def test_choices_without_names_are_numbered_and_repeated_names_are_told_apart() -> None:
    plain = read_prism({".tra": b"2 3 3\n0 0 0 1\n0 2 1 1\n1 1 1 1\n"}, "m.tra")
    assert (plain.actions, plain.action_names) == (3, ())
    assert plain.availability.tolist() == [[True, False, True], [False, True, False]]
    named = read_prism({".tra": b"2 4 4\n0 0 0 1 go\n0 1 1 1 go\n0 2 1 1\n1 0 1 1 go\n"}, "m.tra")
    assert named.action_names == ("go", "go 2", "unlabelled")


PRISM_BAD: dict[str, tuple[dict[str, str | bytes], str]] = {
    "empty": ({"tra": ""}, "the file is empty; its first line gives"),
    "no header": ({"tra": "mdp\n0 0 0 1\n"}, r"m\.tra, line 1: 'mdp' does not give the numbers of states"),
    "no observation": (
        {"tra": "1 1 1 1\n0 0 0 1\n"},
        "line 2: '0 0 0 1' is not of the form: state choice successor probability obs",
    ),
    "no observations": ({"tra": "1 1 1 0\n0 0 0 1 0\n"}, "line 1: give the numbers of .* observations where states"),
    "observation": ({"tra": "1 1 1 2\n0 0 0 1 2\n"}, "line 2: observation 2 is outside 0..1"),
    "two observations": ({"tra": "1 1 1 2\n- - 0 - 1\n0 0 0 1 0\n"}, "line 3: state 0 shows observation 1 on an ear"),
    "never entered": ({"tra": "2 2 2 1\n0 0 1 1 0\n1 0 1 1 0\n"}, "line 1: state 0 of 2 has no observation"),
    "first state": ({"tra": "1 1 1 1\n- 0 0 - 0\n0 0 0 1 0\n"}, "line 2: '-' is not a state"),
    "observables of none": ({"obs": "(o)\n0:(1)\n"}, r"line 1: there is m\.obs, but no number of observations here"),
    "observables": (
        {"tra": "1 1 1 2\n0 0 0 1 0\n", "obs": "(o)\n0:(1)\n"},
        r"m\.obs, line 1: observation 1 has no valuation",
    ),
    "cut off": ({"tra": TRA[:-13]}, r"m\.tra, line 1: 5 transitions are declared, 4 follow"),
    "cut in a line": ({"tra": TRA[:-10]}, "line 6: '2 0' is not of the form: state choice successor probability"),
    "not a number": ({"tra": TRA.replace("0 0 1 0.5", "0 0 1 half")}, "line 2: 'half' is not a probability"),
    "an interval": ({"tra": TRA.replace("0 1 0.5", "0 1 [0.1,0.5]")}, "line 2: .* models with intervals are not supp"),
    "infinite": ({"tra": TRA.replace("0 1 0.5", "0 1 1e999")}, "line 2: probability '1e999' is not finite"),
    "divided by 0": ({"tra": TRA.replace("0 1 0.5", "0 1 1/0")}, "line 2: '1/0' is not a probability"),
    "negative": ({"tra": TRA.replace("0 1 0.5", "0 1 -0.5")}, "line 2: the probability '-0.5' is not from 0 to 1"),
    "sum": (
        {"tra": TRA.replace("0 1 0.5", "0 1 0.4")},
        "line 2: the probabilities of state 0, choice 0 sum to 0.9, not",
    ),
    "sum of a chain": ({"tra": "1 1\n0 0 0.5\n"}, "line 2: the probabilities of state 0 sum to 0.5, not 1"),
    "state": ({"tra": TRA.replace("2 0 2 1 stay", "2 0 3 1 stay")}, "line 6: state 3 is outside 0..2"),
    "negative state": ({"tra": TRA.replace("2 0 2 1", "-2 0 2 1")}, "line 6: '-2' is not a state"),
    "huge state": ({"tra": TRA.replace("2 0 2 1", "9" * 40 + " 0 2 1")}, "line 6: '9+' is not a state"),
    "missing state": (
        {"tra": TRA.replace("2 0 2 1", "1 1 2 1")},
        "line 1: state 2 of 3 has no transition: give it one",
    ),
    "huge header": ({"tra": TRA.replace("3 4 5", "9999999999999 4 5")}, "state 3 of 9999999999999 has no transition"),
    "twice": ({"tra": TRA.replace("0 0 2 0.5", "0 0 1 0.5")}, "line 3: repeats the transition of line 2"),
    "two names": ({"tra": TRA.replace("2 0.5 go", "2 0.5 run")}, "line 3: this choice has another action on another"),
    "huge choice": ({"tra": "3 3 3\n0 2000000000 0 1\n1 0 1 1\n2 0 2 1\n", "trew": ""}, "memory, more than the limit"),
    "not UTF-8": ({"tra": b"3 4 5\n\xff\xfe\n"}, r"m\.tra, line 2: not UTF-8 text"),
    "long line": ({"tra": b"3 " * MEGABYTE}, "line 1: the line is longer than"),
    "labels undeclared": ({"lab": "0: 0\n"}, r"m\.lab, line 1: '0: 0' does not declare labels"),
    "label twice": ({"lab": '0="a" 1="a"\n'}, "line 1: a label or its number is declared twice"),
    "label unknown": ({"lab": '0="a"\n0: 7\n'}, "line 2: label '7' is not declared"),
    "label of no state": ({"lab": '0="a"\n3: 0\n'}, "line 2: state 3 is outside 0..2"),
    "bad label": ({"lab": '0="a b"\n'}, "label 'a b': a name has 1 to 64 of the characters"),
    "labels without end": ({"lab": "#DECLARATION\na\n"}, "no line #END"),
    "reward twice": ({"srew": "3 2\n0 1\n0 2\n"}, r"m\.srew, line 3: the reward of state 0 is given twice"),
    "reward of nothing": ({"srew": "0\n"}, "line 1: '0' has 1 parts, not 2"),
    "infinite reward": ({"srew": "0 inf\n"}, "line 1: 'inf' is not a reward"),
    "huge reward": ({"srew": "0 1e300\n"}, "the reward of .* exceeds"),
    "reward elsewhere": ({"trew": "0 0 0 1\n"}, r"m\.trew, line 1: this transition is not in the \.tra file"),
    "reward of no choice": ({"trew": "0 7 0 1\n"}, "line 1: choice 7 is outside 0..1"),
    "transition reward twice": ({"trew": "0 0 1 1\n0 0 1 2\n"}, "line 2: the reward of this transition is given twice"),
    "rewards without end": ({"trew": "0 0 1 1\n" * 100_000}, "line 6: there are more rewards than the 5 transitions"),
    "variables": ({"sta": "x\n"}, r"m\.sta, line 1: 'x' does not name variables"),
    "too few values": ({"sta": "(x,y)\n0:(1)\n"}, r"line 2: '0:\(1\)' is not of the form state:\(x,y\)"),
    "no values": ({"sta": "(x)\n0 1\n"}, "line 2: '0 1' is not of the form"),
    "valuation twice": ({"sta": "(x)\n0:(1)\n0:(2)\n"}, "line 3: the valuation of state 0 is given twice"),
    "valuation missing": ({"sta": "(x)\n0:(1)\n"}, "line 1: state 1 has no valuation"),
    "valuation shared": ({"sta": "(x)\n0:(1)\n1:(1)\n2:(2)\n"}, "names two states"),
    "bad value": ({"sta": "(x)\n0:(1x)\n"}, "line 2: '1x' is not a value"),
}


@pytest.mark.parametrize("case", PRISM_BAD)
def test_malformed_explicit_files(case: str) -> None:
    changes, says = PRISM_BAD[case]
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=f"^model m.tra: (.|\n)*{says}"):
            read_prism(prism(**changes), "m.tra")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MEGABYTE


def test_too_many_transitions_to_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.authoring.formats.prism_explicit._MOST_KEYS", 10)
    with pytest.raises(ModelError, match="too large for rewards of transitions"):
        read_prism(prism(), "m.tra")


@pytest.mark.parametrize(
    ("changes", "limit", "says"),
    [
        ({}, 100, "bytes of transitions: reading it takes"),
        ({"lab": " ".join(f'{n}="l{n}"' for n in range(900))}, 5000, "900 labels of 3 states"),
        ({"sta": f"({','.join(f'v{n}' for n in range(900))})\n"}, 5000, "900 variables of 3 states"),
        ({}, 3500 - 1000, "3 states"),
    ],
)
def test_explicit_files_beyond_the_limit(changes: dict[str, str | bytes], limit: int, says: str) -> None:
    with pytest.raises(ModelError, match=f"{says}.* more than the limit of"):
        read_prism(prism(**changes), "m.tra", limit=limit)


# ---- DRN ----

DRN = """\
// Exported by storm
@type: MDP
@value_type: double
@parameters

@reward_models
steps cost
@nr_states
2
@nr_choices
3
@model
state 0 [0.5, 0] init start
//[x=0]
\taction go [1, 3]
\t\t0 : 0.5
\t\t1 : 1/2
\taction __NOLABEL__ [0, 0]
\t\t1 : 1
state 1 [0, 0] goal
\taction go [0, 0]
\t\t1 : 1
"""


def test_a_good_drn_file() -> None:
    model = read_drn(DRN.encode(), "m.drn", "cost")
    assert (model.states, model.action_names, list(model.labels)) == (2, ("go", "unlabelled"), ["goal", "start"])
    assert model.rewards.tolist() == [[3, 0], [0, 0]]
    assert read_drn(DRN.encode(), "m.drn", "steps").rewards.tolist() == [[1.5, 0.5], [0, 0]]
    assert not read_drn(DRN.encode(), "m.drn", "none").rewards.any()
    assert model.initial is not None
    assert model.initial.tolist() == [1, 0]


def test_numbered_actions_of_drn_have_no_names() -> None:
    text = "@type: DTMC\n@reward_models\n\n@nr_states\n1\n@model\nstate 0 [2] a init\n action 0 [1]\n  0 : 1\n"
    model = read_drn(text.encode(), "m.drn")
    assert (model.actions, model.action_names, model.rewards.tolist()) == (1, (), [[3]])


HIDDEN = DRN.replace("MDP", "POMDP").replace("state 0", "state 0 {2}").replace("state 1", "state 1 {0}")


def test_observations_of_drn() -> None:
    model = read_drn(HIDDEN.encode(), "m.drn", "cost")
    assert model.emissions is not None
    assert model.emissions.signals == 3
    assert [model.shown(state) for state in range(2)] == [[(2, 1.0)], [(0, 1.0)]]
    assert model.rewards.tolist() == [[3, 0], [0, 0]]
    for seen in ("{x}", "{-1}", "{}"):
        with pytest.raises(ModelError, match=r"line 20: '.*' is not an? (observation|of the form: state number {)"):
            read_drn(HIDDEN.replace("{0}", seen).encode(), "m.drn", "cost")
    with pytest.raises(ModelError, match="observation 9999999999 is outside"):
        read_drn(HIDDEN.replace("{0}", "{9999999999}").encode(), "m.drn", "cost")


DRN_BAD: dict[str, tuple[str, str, str]] = {
    "two rewards": ("", "", r"several reward structures \(steps, cost\): choose one"),
    "no model": ("@model", "@modell", "line 13: 'state 0 .* is not expected before @model"),
    "empty": (DRN, "", "the line @model is missing"),
    "a game": ("MDP", "SMG", "line 2: 'SMG' models are not supported"),
    "no type": ("@type: MDP\n", "", "@type or @nr_states is missing"),
    "parameters": ("@parameters\n\n", "@parameters\np q\n", "line 5: parameters and placeholders are not supported"),
    "huge count": ("@nr_states\n2", "@nr_states\n9999999999999999999999", "line 9: '9+' is not a count"),
    "wrong count": ("@nr_states\n2", "@nr_states\n3", "@nr_states declares 3, the file has 2: it may be cut off"),
    "wrong choices": ("@nr_choices\n3", "@nr_choices\n4", "@nr_choices declares 4, the file has 3"),
    "state": ("state 1", "state x", "line 20: 'state x .* is not of the form: state number"),
    "observation": ("state 1", "state 1 {3}", "line 20: .* is not of the form: state number"),
    "no observation": ("MDP", "POMDP", r"line 13: .* is not of the form: state number {observation} \[rewards\]"),
    "rate": ("state 1", "state 1 !2", "line 20: .* is not of the form: state number"),
    "gap": ("state 1 [0, 0]", "state 0 [0, 0]", "line 20: state 0 follows state 0"),
    "rewards": ("state 1 [0, 0]", "state 1 [0]", "line 20: .* holds 1 rewards, not 2"),
    "reward": ("go [1, 3]", "go [1, x]", "line 15: 'x' is not a reward"),
    "action": ("action go [0, 0]", "action go go", "line 21: .* is not of the form: action name"),
    "no state": ("state 0 [0.5, 0] init start\n", "", "line 14: .* is not of the form: action name"),
    "no action": ("\taction go [0, 0]\n", "", "line 21: .* is not of the form: successor : probability"),
    "no successor": ("\t\t1 : 1\nstate", "state", "line 19: the action above this line has no successor"),
    "no successor 2": ("\t\t0 : 0.5\n\t\t1 : 1/2\n", "", "line 16: the action above this line has no successor"),
    "nothing below": ("\taction go [0, 0]\n\t\t1 : 1\n", "", "state 1, above this line, has no action"),
    "colon": ("0 : 0.5", "0 0.5", "line 16: .* is not of the form: successor"),
    "successor": ("0 : 0.5", "2 : 0.5", "line 16: state 2 is outside 0..1"),
    "negative": ("0 : 0.5", "0 : -0.5", "line 16: the probability '-0.5' is not from 0 to 1"),
    "sum": ("0 : 0.5", "0 : 0.4", "line 15: the probabilities of this action sum to 0.9, not 1"),
}


@pytest.mark.parametrize("case", DRN_BAD)
def test_malformed_drn_files(case: str) -> None:
    old, new, says = DRN_BAD[case]
    rewards = None if case == "two rewards" else "cost"
    with pytest.raises(ModelError, match=f"^model m.drn: .*{says}"):
        read_drn(DRN.replace(old, new, 1).encode(), "m.drn", rewards)


def test_drn_with_rewards_that_it_lacks_or_beyond_the_limit() -> None:
    with pytest.raises(ModelError, match="no rewards 'x'; there are: steps, cost"):
        read_drn(DRN.encode(), "m.drn", "x")
    for limit, says in ((1000, "bytes of text"), (15_500, "labels"), (16_000, "states")):
        with suppress(ModelError):
            read_drn(DRN.encode(), "m.drn", "cost", limit=limit)
        with pytest.raises(ModelError, match="more than the limit"):
            read_drn(DRN.encode() + b" " * limit, says, "cost", limit=limit)


# ---- UMB ----


def members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar.getmembers()}  # type: ignore[union-attr]


def tar_of(held: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in held.items():
            each = tarfile.TarInfo(name)
            each.size, each.type = len(content), kind
            tar.addfile(each, io.BytesIO(content))
    return buffer.getvalue()


def umb(**more: Any) -> dict[str, bytes]:  # noqa: ANN401
    return members(umb_files(random_model(5, everywhere=True, **more))[".umb"])


def index_of(held: dict[str, bytes], *path: str | int, value: object) -> dict[str, bytes]:
    """With one place of the index changed."""
    document = place = json.loads(held["index.json"])
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return {**held, "index.json": json.dumps(document).encode()}


def system(held: dict[str, bytes], key: str, value: object) -> dict[str, bytes]:
    return index_of(held, "transition-system", key, value=value)


def without(held: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: content for key, content in held.items() if key != name}


def test_compressed_or_not_it_is_the_same() -> None:
    held = umb()
    plain = tar_of({f"./{name}": content for name, content in held.items()})
    folder = tar_of({"actions/": b""}, tarfile.DIRTYPE)[:512]
    for content in (plain, folder + plain, gzip.compress(plain), lzma.compress(plain)):
        assert read_umb(content, "m.umb").states == read_umb(tar_of(held), "m.umb").states


def test_rationals_are_read() -> None:
    held = system(umb(), "branch-probability-type", {"type": "rational"})
    doubles = np.frombuffer(held["branch-to-probability.bin"]).tolist()
    parts = [part for p in doubles for part in p.as_integer_ratio()]
    for size in (8, 24):
        held["branch-to-probability.bin"] = b"".join(part.to_bytes(size, "little", signed=False) for part in parts)
        held = system(held, "branch-probability-type", {"type": "rational", "size": 16 * size})
        assert read_umb(tar_of(held), "m.umb").probabilities.tolist() == doubles


REWARD = {"alias": "other", "applies-to": ["states", "branches"], "type": {"type": "double"}}


def test_one_of_several_reward_structures_is_chosen() -> None:
    held = index_of(umb(), "annotations", "rewards", "two", value=REWARD)
    model = read_umb(tar_of(held), "m.umb", "reward")
    held["annotations/rewards/two/states/values.bin"] = np.arange(model.states, dtype="<f8").tobytes()
    content = tar_of(held)
    with pytest.raises(
        ModelError, match=r"several reward structures \(reward, two\): choose one with .* --rewards NAME"
    ):
        read_umb(content, "m.umb")
    with pytest.raises(ModelError, match="there are no rewards 'x'; there are: reward, two"):
        read_umb(content, "m.umb", "x")
    assert not read_umb(content, "m.umb", "none").rewards.any()
    for name in ("two", "other"):
        assert read_umb(content, "m.umb", name).rewards[:, 0].tolist() == list(range(model.states))


def variables(*parts: dict[str, Any], content: bytes) -> bytes:
    """A model of two states with these variables."""
    rows = {
        "state-to-choices.bin": np.arange(3, dtype="<u8").tobytes(),
        "branch-to-target.bin": np.array([1, 1], "<u8").tobytes(),
        "branch-to-probability.bin": np.ones(2, "<f8").tobytes(),
        "valuations/states/valuations.bin": content,
        "valuations/states/string-mapping.bin": np.array([0, 2, 3], "<u8").tobytes(),
        "valuations/states/strings.bin": b"abc",
    }
    counts = {"#states": 2, "#choices": 2, "#branches": 2, "#choice-actions": 0, "#players": 0, "#initial-states": 0}
    index = {
        "format-version": 1,
        "transition-system": {**counts, "time": "discrete", "branch-probability-type": {"type": "double"}},
        "valuations": {"states": {"unique": False, "classes": [{"variables": list(parts)}]}},
    }
    return tar_of({"index.json": json.dumps(index).encode(), **rows})


def test_packed_variables_as_in_the_specification() -> None:
    """Its example 1, in which nothing is optional here, and example 2 with an offset; numbers across bytes."""
    first: list[dict[str, Any]] = [
        {"name": "v0", "type": {"type": "bool", "size": 2}},
        {"name": "v1", "type": {"type": "uint", "size": 6}},
        {"padding": 1},  # there an optional variable's bit
        {"padding": 5},
        {"name": "v2", "type": {"type": "string"}},
        {"name": "v3", "type": {"type": "bool", "size": 3}},
        {"padding": 7},
    ]
    row = bytes(int(byte, 2) for byte in ("01101101", "01000001", *["00000000"] * 7, "01000000", "00000000"))
    other = bytes([row[0] & 0b11111100, *row[1:]])
    model = read_umb(variables(*first, content=row + other), "m.umb")
    assert model.valuations == ((True, 27.0, "c", True), (False, 27.0, "c", True))
    second: list[dict[str, Any]] = [
        {"name": "sv0", "type": {"type": "uint", "size": 8}, "offset": -128},
        {"name": "sv1", "type": {"type": "int", "size": 16}},
        {"name": "x", "type": {"type": "double"}},
    ]
    row = bytes([0b10111000, 0b11111111, 0b10111101]) + np.array([0.25], "<f8").tobytes()
    model = read_umb(variables(*second, content=row + bytes(11)), "m.umb")
    assert model.valuations == ((56.0, -16897.0, 0.25), (-128.0, 0.0, 0.0))
    assert model.state_names == ("sv0=56, sv1=-16897, x=0.25", "sv0=-128, sv1=0, x=0")


def test_an_offset_may_be_the_least_number_of_64_bits() -> None:
    """As Storm writes whole numbers without bounds."""
    part = {"name": "b", "type": {"type": "uint", "size": 64}, "offset": -(1 << 63)}
    content = b"".join(((1 << 63) + value).to_bytes(8, "little") for value in (-3, 1 << 53))
    assert read_umb(variables(part, content=content), "m.umb").valuations == ((-3.0,), (float(1 << 53),))


def test_rewards_that_apply_to_nothing_are_zero() -> None:
    """As Storm writes a transient variable of JANI that is never assigned."""
    held = index_of(umb(), "annotations", "rewards", value={"x": {"applies-to": []}})
    assert not read_umb(tar_of(held), "m.umb").rewards.any()


def test_text_without_its_members() -> None:
    held = members(variables({"name": "b", "type": {"type": "string"}}, content=bytes(8) + b"\x01" + bytes(7)))
    assert read_umb(tar_of(held), "m.umb").valuations == (("ab",), ("c",))
    with pytest.raises(ModelError, match=r"string-mapping.bin is missing, and variable 'b' is text"):
        read_umb(tar_of(without(held, "valuations/states/string-mapping.bin")), "m.umb")


def test_without_values_every_choice_has_the_first_action() -> None:
    held = system(members(variables(BYTE, content=bytes([0, 1]))), "#choice-actions", 2)
    model = read_umb(tar_of(held), "m.umb")
    assert (model.actions, model.action_names) == (2, ())
    assert model.availability.tolist() == [[True, False], [True, False]]


def test_valuations_that_do_not_tell_states_apart_are_left_out() -> None:
    with pytest.warns(ModelWarning, match="several states have the same valuation, so valuations are left out"):
        model = read_umb(variables({"name": "b", "type": {"type": "uint", "size": 8}}, content=bytes(2)), "m.umb")
    assert model.valuations == ()


BYTE = {"name": "b", "type": {"type": "uint", "size": 8}}
BAD_VARIABLES: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "no whole bytes": ({**BYTE, "type": {"type": "uint", "size": 7}}, bytes(2), "no whole number of bytes"),
    "rational": ({**BYTE, "type": {"type": "rational"}}, bytes(32), "a variable of a kind that is not supported"),
    "too wide": ({**BYTE, "type": {"type": "uint", "size": 128}}, bytes(32), "a variable of a kind that is not"),
    "absent": (
        {"name": "b", "type": {"type": "uint", "size": 7}, "is-optional": True},
        bytes(2),
        "a variable of a kind that",
    ),
    "offset": ({**BYTE, "offset": 1e300}, bytes([0, 1]), "its offset 1e\\+300 is not a whole number"),
    "huge offset": ({**BYTE, "offset": -(1 << 65)}, bytes([0, 1]), "its offset -36893488147419103232 is not a whole"),
    "huge value": (
        {**BYTE, "offset": 1 << 53},
        bytes([0, 1]),
        "has the value 9007199254740993, which is beyond 2\\^53",
    ),
    "too short": (BYTE, bytes(1), "has 1 bytes; 2 numbers of 1 bytes are expected"),
    "text": ({"name": "b", "type": {"type": "string"}}, bytes([9] + [0] * 15), "refers to text 9 of 2"),
    "not finite": ({"name": "b", "type": {"type": "double"}}, b"\xff" * 16, "valuation entry nan"),
}


@pytest.mark.parametrize("case", BAD_VARIABLES)
def test_malformed_variables(case: str) -> None:
    part, content, says = BAD_VARIABLES[case]
    with pytest.raises(ModelError, match=f"^model m.umb: .*{says}"), warnings.catch_warnings(action="ignore"):
        read_umb(variables(part, content=content), "m.umb")


UMB_BAD: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "no index": (lambda held: without(held, "index.json"), "index.json is missing from the archive"),
    "no JSON": (lambda held: {**held, "index.json": b"{"}, "index.json is not JSON"),
    "deep JSON": (lambda held: {**held, "index.json": b"[" * 100_000}, "index.json is not JSON"),
    "a list": (lambda held: {**held, "index.json": b"[]"}, "index.json must hold an object"),
    "long index": (lambda held: {**held, "index.json": b" " * (5 * MEGABYTE)}, "more than the limit of"),
    "version": (lambda held: index_of(held, "format-version", value=2), "gives format-version 2; this version reads 1"),
    "no system": (lambda held: index_of(held, "transition-system", value=[]), "format-version"),
    "negative": (lambda held: system(held, "#states", -1), "#states is -1, not a whole number"),
    "text": (lambda held: system(held, "#states", "many"), "#states is many, not a whole number"),
    "Boolean": (lambda held: system(held, "#states", value=True), "#states is True, not a whole number"),
    "too many states": (lambda held: system(held, "#states", 1 << 40), "every state needs a choice"),
    "no states": (lambda held: system(held, "#states", 0), "every state needs a choice"),
    "many": (
        lambda held: system(system(system(held, "#states", 1 << 40), "#choices", 1 << 40), "#branches", 1 << 40),
        "branch-to-target.bin has .* bytes; 1,099,511,627,776 numbers",
    ),
    "actions": (lambda held: system(held, "#choice-actions", 1 << 40), "more than the limit|bytes; "),
    "continuous": (lambda held: system(held, "time", "stochastic"), "only Markov chains and Markov decision processes"),
    "a game": (lambda held: system(held, "#players", 2), "only Markov chains and"),
    "hidden": (lambda held: system(held, "#observations", 2), "its observations apply to None; those of states are"),
    "observations of branches": (
        lambda held: system(system(held, "#observations", 2), "observations-apply-to", "branches"),
        "its observations apply to branches; those of states",
    ),
    "no observations": (
        lambda held: system(system(held, "#observations", 2), "observations-apply-to", "states"),
        "observations/states/values.bin is missing",
    ),
    "intervals": (
        lambda held: system(held, "branch-probability-type", {"type": "double-interval"}),
        "numbers of type .*interval.* are not supported",
    ),
    "no type": (lambda held: system(held, "branch-probability-type", None), "gives no branch-probability-type"),
    "rational size": (
        lambda held: system(held, "branch-probability-type", {"type": "rational", "size": 12}),
        "do not fit .* rationals",
    ),
    "rational 0": (
        lambda held: {
            **system(held, "branch-probability-type", {"type": "rational"}),
            "branch-to-probability.bin": bytes(2 * len(held["branch-to-probability.bin"])),
        },
        "a fraction cannot be computed",
    ),
    "no targets": (lambda held: without(held, "branch-to-target.bin"), "branch-to-target.bin is missing"),
    "no ranges": (lambda held: without(held, "choice-to-branches.bin"), "choice-to-branches.bin is missing, and"),
    "ranges": (
        lambda held: {**held, "choice-to-branches.bin": held["choice-to-branches.bin"][::-1]},
        "choice-to-branches.bin: entry|must rise from 0",
    ),
    "falling": (
        lambda held: {**held, "state-to-choices.bin": held["state-to-choices.bin"][8:] + bytes(8)},
        "state-to-choices.bin must rise from 0",
    ),
    "an empty choice": (
        lambda held: {
            **held,
            "choice-to-branches.bin": bytes(8)
            + held["choice-to-branches.bin"][:-16]
            + held["choice-to-branches.bin"][-8:],
        },
        "has no branch: give it at least one",
    ),
    "target": (
        lambda held: {**held, "branch-to-target.bin": b"\xff" * len(held["branch-to-target.bin"])},
        "branch-to-target.bin: entry 0 is .* outside 0",
    ),
    "sum": (
        lambda held: {**held, "branch-to-probability.bin": bytes(8) + held["branch-to-probability.bin"][8:]},
        "sums to|no available action|sum to",
    ),
    "nan": (
        lambda held: {**held, "branch-to-probability.bin": b"\xff" * len(held["branch-to-probability.bin"])},
        "entry 0 is nan; every entry must be finite",
    ),
    "bits": (lambda held: {**held, "state-is-initial.bin": bytes(100)}, "has 100 bytes, which do not fit"),
    "action": (
        lambda held: {**held, "actions/choices/values.bin": b"\xff" * len(held["actions/choices/values.bin"])},
        "actions/choices/values.bin: entry 0 is",
    ),
    "names": (
        lambda held: {**held, "actions/choices/strings.bin": b"\xff" * len(held["actions/choices/strings.bin"])},
        "strings.bin is not UTF-8 text",
    ),
    "annotations": (lambda held: index_of(held, "annotations", value=[]), "annotations is not an object"),
    "identifier": (
        lambda held: index_of(held, "annotations", "aps", "../x", value={}),
        "'../x' is not an identifier of an annotation",
    ),
    "alias": (
        lambda held: index_of(held, "annotations", "aps", "x", value={"alias": "goal"}),
        "label 'goal' is given twice",
    ),
    "rewards of nothing": (
        lambda held: index_of(held, "annotations", "rewards", value={"x": {"applies-to": "states"}}),
        "rewards 'x' do not say what they apply to",
    ),
    "rewards of players": (
        lambda held: index_of(held, "annotations", "rewards", value={"x": {"applies-to": ["players"]}}),
        "rewards 'x' apply to 'players'",
    ),
    "no class": (
        lambda held: index_of(held, "valuations", value={"states": {"classes": []}}),
        "not described by one class",
    ),
}


@pytest.mark.parametrize("case", UMB_BAD)
def test_malformed_umb_files(case: str) -> None:
    change, says = UMB_BAD[case]
    held = change(umb(action_names=["a", "b", "c", "d"][: random_model(5).actions]))
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=f"^model m.umb: .*({says})"):
            read_umb(tar_of(held), "m.umb", limit=400 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * MEGABYTE


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "it is no tar archive, or empty"),
    "noise": (lambda: bytes(range(1, 256)) * 10, "it is no tar archive"),
    "a bomb": (lambda: gzip.compress(bytes(80 * MEGABYTE), 1), "unpacks to more than the limit"),
    "cut off": (lambda: gzip.compress(tar_of(umb()))[:-200], "is cut off|not a readable"),
    "tar cut off": (lambda: tar_of(umb())[:1000], "it is no tar archive, or cut off"),
    "broken gzip": (lambda: b"\x1f\x8b\x08" + b"x" * 50, "not a readable .umb file"),
    "broken xz": (lambda: b"\xfd7zXZ\x00" + b"x" * 50, "not a readable .umb file"),
    "twice": (lambda: tar_of({"a": b""})[:512] * 2, "holds 'a' twice"),
    "a link": (lambda: tar_of({"a": b""}, tarfile.SYMTYPE), "a member of kind b'2'"),
    "sparse": (lambda: tar_of({"a": b""}, tarfile.GNUTYPE_SPARSE), "a member of kind b'S'"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_are_none(case: str) -> None:
    make, says = ARCHIVES[case]
    with pytest.raises(ModelError, match=f"^model m.umb: .*({says})"):
        read_umb(make(), "m.umb", limit=64 * MEGABYTE)


# ---- what fits the limit takes no more than it ----


def ring(*, valued: bool) -> MDP:
    states = 1000
    successors = np.sort(np.stack([np.arange(states), (np.arange(states) + 1) % states], 1), 1).reshape(-1)
    return MDP.from_rows(
        states=states,
        actions=1,
        indptr=np.arange(0, 2 * states + 1, 2),
        successors=successors,
        probabilities=np.full(2 * states, 0.5),
        transition_rewards=np.arange(2.0 * states),
        labels={f"l{n}": [n] for n in range(5)},
        valuations=[(float(s), s % 2 == 0, s * 0.5, "é") for s in range(states)] if valued else (),
    )


def as_drn(model: MDP) -> bytes:
    lines = [f"@type: MDP\n@nr_states\n{model.states}\n@model"]
    for s in range(model.states):
        lines += [f"state {s} [1] l{s % 3}\naction 0 [0]", *(f"{t} : 0.5" for t in model.row(s, 0)[0])]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("form", ["tra", "umb", "drn"])
def test_reading_takes_no_more_memory_than_the_limit(form: str, valued: bool) -> None:  # noqa: FBT001
    model = ring(valued=valued)
    files = {suffix: content.replace(b"(v0,v1,v2,v3)", b"(x,b,y,t)") for suffix, content in prism_files(model).items()}
    packed, text = umb_files(model)[".umb"], as_drn(model)

    def read(limit: int) -> None:
        match form:
            case "tra":
                read_prism(files, "m.tra", limit=limit)
            case "umb":
                read_umb(packed, "m.umb", limit=limit)
            case _:
                read_drn(text, "m.drn", limit=limit)

    tracemalloc.start()
    try:
        read(1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    with pytest.raises(ModelError, match="more than the limit of"):
        read(peak)
    read(20 * peak)
