"""`cfmon model`, `policy` and `config`: what they show, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.input_files import data_file
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]
ICU = data_file("policies/icu-sepsis")


def test_model_info_counts_what_is_there(workdir: Path, cfmon: Run) -> None:
    code, out, _ = cfmon("model", "info", str(workdir / "model.npz"), "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["states"], facts["actions"]) == (3, 2)
    assert facts["available (state, action) rows"] == 6
    assert facts["labels"] == {"goal": 1, "unsafe": 1}
    assert cfmon("model", "info", str(workdir / "model.npz"))[1].count("\n") == len(facts)


@pytest.mark.usefixtures("workdir")
def test_converting_keeps_the_model(cfmon: Run) -> None:
    code, out, _ = cfmon("model", "convert", "model.npz", "copy.npz")
    assert code == 0
    digest = json.loads(cfmon("model", "info", "model.npz", "--json")[1])["sha256"]
    assert digest in out
    assert json.loads(cfmon("model", "info", "copy.npz", "--json")[1])["sha256"] == digest


@pytest.mark.usefixtures("workdir")
def test_an_environment_that_does_not_follow_its_table_is_converted_with_a_warning(cfmon: Run) -> None:
    pytest.importorskip("gymnasium")
    source = "gymnasium:Taxi-v4?fickle_passenger=true"
    code, out, err = cfmon("model", "convert", source, "taxi.npz")
    assert code == 0
    assert err.startswith(f"cfmon: warning: model {source}: the environment does not follow its own P")
    assert f"taxi.npz: {err.removeprefix('cfmon: warning: ')}" in out
    problems = json.loads(cfmon("model", "info", source, "--json")[1])["problems"]
    assert [f"cfmon: warning: {problem}\n" for problem in problems] == [err]


def test_signals_of_hidden_states_are_counted(tmp_path: Path, cfmon: Run) -> None:
    file = tmp_path / "door.pomdp"
    file.write_text("states: a b\nactions: 1\nobservations: 3\nT: 0 uniform\nO: 0\n0 0.5 0.5\n1 0 0\n")
    code, out, _ = cfmon("model", "convert", str(file), str(tmp_path / "door.npz"), "--label", "ended: value[0] == 'b'")
    assert code == 0
    assert "door.npz: 4 states that show 4 signals, 1 actions, sha256 " in out
    assert "door.npz: ended holds in 2 states" in out
    facts = json.loads(cfmon("model", "info", str(tmp_path / "door.npz"), "--json")[1])
    assert (facts["signals of hidden states"], facts["signals a state, most"]) == (4, 2)


def test_model_info_says_what_rewards_depend_on(cfmon: Run) -> None:
    pytest.importorskip("gymnasium")
    for source, depend, varying in (("CliffWalking-v1", False, 0), ("CliffWalkingSlippery-v1", True, 6)):
        facts = json.loads(cfmon("model", "info", f"gymnasium:{source}", "--json")[1])
        assert facts["rewards"] is True
        assert facts["rewards depend on the successor"] is depend
        assert facts["transitions whose reward varies"] == varying
        assert facts["states with a copy for the end"] == 1


def test_policy_info_checks_against_the_model(cfmon: Run, workdir: Path) -> None:
    code, out, _ = cfmon("policy", "info", str(ICU / "clinicians.yaml"), "--model", str(ICU / "model.npz"), "--json")
    facts = json.loads(out)
    assert (code, facts["kind"]) == (0, "stochastic")
    assert facts["states with several actions"] == 476  # of 716: elsewhere one action is admissible
    code, out, err = cfmon("policy", "info", str(ICU / "clinicians.yaml"), "--model", str(workdir / "model.npz"))
    assert (code, out) == (2, "")
    assert "clinicians" in err


@pytest.mark.parametrize(
    ("scenario", "formulas"),
    [
        ("icu-sepsis", ["regret_fallback"]),
        ("frozen-lake", ["regret_fallback"]),
        pytest.param("icu-sepsis-handover", ["handover_fallback", "regret_fallback"], marks=slow),
    ],
)
def test_the_shipped_configurations_are_right(cfmon: Run, scenario: str, formulas: list[str]) -> None:
    code, out, err = cfmon("config", "check", str(data_file(f"config/{scenario}.yaml")), "--json")
    assert (code, err) == (0, "")
    assert list(json.loads(out)["formulas"]) == formulas
    code, out, _ = cfmon("config", "check", str(data_file(f"config/{scenario}.yaml")))
    assert code == 0
    assert ": valid\n" in out


def test_a_typo_in_a_configuration_is_reported_with_its_line(cfmon: Run, tmp_path: Path) -> None:
    text = data_file("config/icu-sepsis.yaml").read_text().replace("heartbeat:", "heartbeet:")
    (tmp_path / "config.yaml").write_text(text)
    line = text[: text.index("heartbeet")].count("\n") + 1
    code, out, err = cfmon("config", "check", str(tmp_path / "config.yaml"))
    assert (code, out) == (2, "")
    assert f"line {line}" in err
    assert "heartbeat" in err


def test_the_schema_is_one_json_document(cfmon: Run) -> None:
    code, out, _ = cfmon("config", "schema")
    assert code == 0
    assert "formulas" in json.loads(out)["properties"]
