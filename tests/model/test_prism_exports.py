"""What PRISM's explicit export writes: every file is read, or refused with one clear message; none is left out."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import monitor
from monitor.errors import ModelError, ModelWarning
from monitor.model import MDP, canonical_bytes, load_model, save_model
from monitor.model.emissions import Emissions
from tests.model.verification_models import random_model

JOB: Mapping[str, str] = {
    ".tra": "# Transitions (MDP)\n3 4 6\n0 0 1 0.9 haul\n0 0 2 0.1 haul\n0 1 0 1 wait\n1 0 1 1 stay\n2 0 1 0.5 mend\n"
    "2 0 2 0.5 mend\n",
    ".lab": '# Labels\n0="init" 1="deadlock" 2="stuck"\n0: 0\n2: 2\n',
    ".sta": "# States\n(x)\n0:(0)\n1:(1)\n2:(2)\n",
    "1.srew": '# Reward structure "minutes"\n# State rewards\n3 1\n2 5\n',
    "1.trew": '# Reward structure "minutes"\n# Transition rewards\n3 4 2\n0 0 1 1\n0 0 2 1\n',
    "2.srew": '# Reward structure "fuel"\n# State rewards\n3 0\n',
    "2.trew": '# Reward structure "fuel"\n# Transition rewards\n3 4 2\n0 0 1 3\n0 0 2 3\n',
}
"""An MDP with two reward structures, as PRISM writes it: it numbers the files of rewards."""

MINUTES = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0]]
FUEL = [[3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
"""Reward of each state and action (haul, wait, stay, mend), read off the files by hand."""


def write(folder: Path, files: Mapping[str, str | bytes], stem: str = "job") -> Path:
    for ending, content in files.items():
        (folder / f"{stem}{ending}").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / f"{stem}.tra"


def without(*endings: str) -> dict[str, str]:
    return {ending: content for ending, content in JOB.items() if not ending.endswith(endings)}


def old(files: Mapping[str, str]) -> dict[str, str]:
    """Without the comments, as older versions write them."""
    return {
        ending: "".join(f"{line}\n" for line in content.splitlines() if not line.startswith("#"))
        for ending, content in files.items()
    }


def combined(files: Mapping[str, str], order: tuple[str, ...] = tuple(JOB)) -> str:
    return "\n".join(files[ending] for ending in order if ending in files)


def paid(model: MDP) -> list[list[float]]:
    """Return the expected reward of each state and action, by enumeration of the transitions."""
    names = [model.action_index[name] for name in ("haul", "wait", "stay", "mend")]
    return [
        [
            sum(p * model.reward(s, a, y) for y, p in zip(*map(np.ndarray.tolist, model.row(s, a)), strict=True))
            for a in names
        ]
        for s in range(model.states)
    ]


def test_of_several_reward_structures_one_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path, JOB)
    with pytest.raises(
        ModelError, match=r"several reward structures \(minutes, fuel\): choose one with .* --rewards NAME"
    ):
        load_model(file)
    with pytest.raises(ModelError, match="there are no rewards 'money'; there are: minutes, fuel"):
        load_model(file, "money")
    for name, number, expected in (("minutes", "1", MINUTES), ("fuel", "2", FUEL)):
        for wanted in (name, number):
            assert paid(load_model(file, wanted)) == expected
    assert not np.any(load_model(file, "none").rewards)


def test_the_most_expected_minutes_of_two_steps(tmp_path: Path) -> None:
    """By hand: C<=1 counts the rewards of the first two steps. From 0: haul, then mend where it went wrong."""
    model = load_model(write(tmp_path, JOB), "minutes")
    table = np.zeros(model.states)
    for _ in range(2):
        table = np.array(
            [
                max(
                    sum(p * (model.reward(s, a, y) + table[y]) for y, p in zip(*model.row(s, a), strict=True))
                    for a in np.flatnonzero(model.availability[s]).tolist()
                )
                for s in range(model.states)
            ]
        )
    assert table.tolist() == pytest.approx([1.5, 0.0, 7.5])
    haul, stay, mend = (model.action_index[name] for name in ("haul", "stay", "mend"))
    found = monitor.values("R=? [ C<=1 ]", model=model, policies={"nominal": [haul, stay, mend]})
    assert list(found) == pytest.approx([1.5, 0.0, 7.5])


def test_without_comments_structures_are_chosen_by_number(tmp_path: Path) -> None:
    file = write(tmp_path, old(JOB))
    with pytest.raises(ModelError, match=r"several reward structures \(1, 2\): choose one"):
        load_model(file)
    assert paid(load_model(file, "1")) == MINUTES
    assert paid(load_model(file, "2")) == FUEL


@pytest.mark.parametrize("kinds", [(".srew",), (".trew",), (".srew", ".trew")])
def test_one_structure_has_no_number_and_may_have_a_name(kinds: tuple[str, ...], tmp_path: Path) -> None:
    files = without("srew", "trew") | {kind: JOB[f"1{kind}"] for kind in kinds}
    expected = [[MINUTES[0][0] * (".trew" in kinds), 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5.0 * (".srew" in kinds)]]
    file = write(tmp_path, files)
    for wanted in (None, "minutes"):
        assert paid(load_model(file, wanted)) == expected
    with pytest.raises(ModelError, match="there are no rewards 'fuel'; there are: minutes"):
        load_model(file, "fuel")
    unnamed = write(tmp_path, old(files), "unnamed")
    assert paid(load_model(unnamed)) == expected
    with pytest.raises(ModelError, match="there are no rewards 'fuel'; there are: one without a name"):
        load_model(unnamed, "fuel")


def test_only_one_kind_of_file_has_a_structure_of_that_number(tmp_path: Path) -> None:
    file = write(tmp_path, without("1.trew", "2.srew"))
    assert paid(load_model(file, "minutes"))[2][3] == 5
    assert paid(load_model(file, "minutes"))[0][0] == 0
    assert paid(load_model(file, "fuel")) == FUEL


def test_numbered_files_of_a_chain(tmp_path: Path) -> None:
    files = {
        ".tra": "# Transitions (DTMC)\n2 3\n0 0 0.5 go\n0 1 0.5 stop\n1 1 1\n",
        "1.trew": '# Reward structure "a"\n# Transition rewards\n2 1\n0 1 4\n',
        "2.srew": '# Reward structure "b"\n# State rewards\n2 1\n1 1/2\n',
    }
    file = write(tmp_path, files)
    a, b = load_model(file, "a"), load_model(file, "b")
    assert (a.reward(0, 0, 1), a.reward(0, 0, 0), a.reward(1, 0, 1)) == (4, 0, 0)
    assert (b.reward(0, 0, 1), b.reward(1, 0, 1)) == (0, 0.5)


def test_files_of_another_model_are_not_taken_for_reward_structures(tmp_path: Path) -> None:
    single = without("srew", "trew")
    file, other = write(tmp_path, single, "m"), write(tmp_path, single | {".srew": JOB["1.srew"]}, "m1")
    with pytest.warns(ModelWarning, match=r"not read, because they belong to other models beside it: m1\.srew"):
        assert not np.any(load_model(file).rewards)
    assert paid(load_model(other))[2][3] == 5
    other.unlink()
    assert paid(load_model(file))[2][3] == 5  # now m1.srew is of m


@pytest.mark.parametrize("form", ["new", "old"])
def test_a_combined_file_is_the_same_model(form: str, tmp_path: Path) -> None:
    file = tmp_path / "job.pexp"
    text = combined(JOB)
    if form == "old":  # the first heading may be missing
        text = text.split("\n", 1)[1]
    file.write_text(text)
    plain = write(tmp_path, JOB, "plain")
    with pytest.raises(ModelError, match=r"several reward structures \(minutes, fuel\)"):
        load_model(file)
    for wanted, expected in (("minutes", MINUTES), ("2", FUEL)):
        model, same = load_model(file, wanted), load_model(plain, wanted)
        assert paid(model) == expected
        assert model.action_names == same.action_names
        assert model.valuations == same.valuations == ((0.0,), (1.0,), (2.0,))
        assert model.labels["stuck"].tolist() == [False, False, True]
        assert model.initial is not None
        assert model.initial.tolist() == [1, 0, 0]


def test_errors_in_a_combined_file_name_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "job.pexp"
    text = combined(JOB).replace("2 5\n", "2 x\n", 1)
    file.write_text(text)
    line = text.splitlines().index("2 x") + 1
    with pytest.raises(ModelError, match=rf"job\.pexp, line {line}: 'x' is not a reward"):
        load_model(file, "minutes")
    file.write_text(combined(JOB) + '\n# Labels\n0="a"\n')
    with pytest.raises(ModelError, match=r"job\.pexp, line \d+: a second part of the kind \.lab"):
        load_model(file, "minutes")
    file.write_text("# States\n(x)\n0:(0)\n")
    with pytest.raises(ModelError, match="there are no transitions"):
        load_model(file)


REFUSED: dict[str, tuple[Mapping[str, str | bytes], str]] = {
    "continuous time": ({".tra": "# Transitions (CTMC)\n1 1\n0 0 1\n"}, "line 1: CTMC models are not supported"),
    "without probabilities": ({".tra": "# Transitions (LTS)\n1 1 1\n0 0 0\n"}, "line 1: LTS models are not supported"),
    "intervals": ({".tra": "# Transitions (IMDP)\n1 1 1\n0 0 0 [1,1]\n"}, "line 1: IMDP models are not supported"),
    "observations": ({**without("rew"), ".obs": "(o)\n0:(0)\n"}, r"line 2: there is job\.obs, but no number of obs"),
    "rows": ({".tra": "2 3\n0 0.5:0 0.5:1\n1 1:1\n"}, "line 2: .* one line for each row: export without `rows`"),
    "rows of one": ({".tra": "1 1\n0 1:0\n"}, "line 2: .* one line for each row"),
    "rows of an MDP": ({".tra": "1 1 1\n0 0 1:0 go\n"}, "line 2: .* one line for each row"),
    "rows of rewards": (
        {".tra": "1 1\n0 0 1\n", ".trew": "1 1\n0 1:0\n"},
        r"job\.trew, line 2: .* one line for each row",
    ),
    "Matlab": ({".tra": "P = sparse(2,2);\nP(1,2)=1;\n"}, "forms for Matlab and MRMC are not read"),
    "MRMC": ({".tra": "STATES 2\nTRANSITIONS 2\n1 2 1\n2 2 1\n"}, "forms for Matlab and MRMC are not read"),
    "compressed": ({**without("rew"), ".srew.gz": gzip.compress(b"3 0\n")}, r"job\.srew\.gz, beside it, is compressed"),
    "compressed, numbered": ({**without("rew"), "2.trew.xz": b"x"}, r"job2\.trew\.xz, beside it, is compressed"),
    "exchanged": (
        {**without("rew"), ".srew": JOB["1.trew"]},
        r"job\.srew, line 2: '# Transition rewards' belongs into a",
    ),
    "labels for states": (
        {**without("rew"), ".sta": JOB[".lab"]},
        r"job\.sta, line 1: '# Labels' belongs into a \.lab",
    ),
    "with and without a number": ({**JOB, ".srew": "3 0\n"}, "files of rewards with a number and without one"),
    "two names": ({**JOB, "1.trew": JOB["2.trew"]}, "'fuel', and the other file of the same number 'minutes'"),
    "a name twice": (
        {**JOB, **{f"2{kind}": JOB[f"1{kind}"] for kind in (".srew", ".trew")}},
        "two reward structures have the name 'minutes'",
    ),
    "cut off": ({**without("rew"), ".srew": "3 2\n2 5\n"}, r"job\.srew, line 1: 2 rewards are declared, 1 follow"),
    "cut off, transitions": (
        {**without("rew"), ".trew": "3 4 2\n0 0 1 1\n"},
        r"job\.trew, line 1: 2 rewards are declared, 1 follow",
    ),
}


LAMP: Mapping[str, str] = {
    ".tra": "# Transitions (POMDP)\n3 4 6 2\n- - 0 - 1\n0 0 1 0.5 0 switch\n0 0 2 0.5 0 switch\n1 0 1 0.25 0 switch\n"
    "1 0 0 0.75 1 switch\n2 0 2 1 0\n2 1 0 1 1 mend\n",
    ".lab": '# Labels\n0="init" 1="broken"\n0: 0\n2: 1\n',
    ".sta": "# States\n(bulb,on)\n0:(1,true)\n1:(1,false)\n2:(0,false)\n",
    ".obs": "# Observations\n(on)\n0:(false)\n1:(true)\n",
}
"""A lamp that is off, or broken: both look alike. As PRISM writes a model with observations."""


@pytest.mark.parametrize("form", ["beside", "combined", "no .obs"])
def test_observations(form: str, tmp_path: Path) -> None:
    if form == "combined":
        file = tmp_path / "lamp.pexp"
        file.write_text(combined(LAMP, (".tra", ".sta", ".obs", ".lab")))
    else:
        file = write(tmp_path, {key: text for key, text in LAMP.items() if form == "beside" or key != ".obs"}, "lamp")
    model = load_model(file)
    assert model.emissions is not None
    assert (model.emissions.signals, model.action_names) == (2, ("switch", "unlabelled", "mend"))
    assert [model.shown(state) for state in range(3)] == [[(1, 1.0)], [(0, 1.0)], [(0, 1.0)]]
    assert model.signal_names == (() if form == "no .obs" else ("on=false", "on=true"))
    policy = {"nominal": monitor.Policy([[1, 0, 0], [1, 0, 0], [0, 0.5, 0.5]], sees="state")}
    verdict = monitor.check('P=? [ "broken" ]', model=model, path=[(1, 0), (0, None)], policies=policy)
    assert verdict.value == 0.5
    with pytest.warns(ModelWarning, match="cannot hold: state names"):
        save_model(model, tmp_path / "back.tra")
    back = load_model(tmp_path / "back.tra")
    assert back.emissions is not None
    assert back.emissions.only is not None
    assert back.emissions.only.tolist() == [1, 0, 0]


def test_a_state_that_shows_one_of_several_observations_cannot_be_written(tmp_path: Path) -> None:
    shows = Emissions.from_tuples(2, 2, [(0, 0, 1.0), (1, 0, 0.5), (1, 1, 0.5)])
    model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)])
    with pytest.raises(ModelError, match=r"m\.tra: state 1 shows one of several observations by chance"):
        save_model(replace(model, emissions=shows), tmp_path / "m.tra")
    assert not list(tmp_path.iterdir())


def test_a_state_that_is_never_entered_keeps_its_observation(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 1.0), (1, 0, 1, 1.0)]
    model = MDP.from_transitions(states=2, actions=1, transitions=rows, signals=3, emissions=[(0, 2, 1), (1, 1, 1)])
    save_model(model, tmp_path / "m.tra")
    assert canonical_bytes(load_model(tmp_path / "m.tra")) == canonical_bytes(model)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused(case: str, tmp_path: Path) -> None:
    files, says = REFUSED[case]
    with pytest.raises(ModelError, match=rf"^model .*job\.tra: .*{says}"):
        load_model(write(tmp_path, files), "minutes" if case in ("two names", "a name twice") else None)


def test_numbered_files_that_would_be_read_too_are_not_left_beside_a_new_model(tmp_path: Path) -> None:
    (tmp_path / "m2.srew").write_text("3 0\n")
    with pytest.raises(ModelError, match=r"m2\.srew exists and would be read as part of the model: remove it"):
        save_model(random_model(1), tmp_path / "m.tra")
    assert [each.name for each in tmp_path.iterdir()] == ["m2.srew"]
