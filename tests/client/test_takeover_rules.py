"""Rules of a takeover: from a file, from a map; what is wrong is said with its place."""

from __future__ import annotations

import builtins
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cfmon_client import ClientError, Rules
from cfmon_client.takeover_rules import read_rules

LEAST = {"when_blind": "carry_on", "when_silent": "fallback"}
FULL = {
    **LEAST,
    "severity": ["warning", "critical"],
    "formulas": ["watch"],
    "only_if_helps": False,
    "only_if_robust": True,
    "hold": 5,
    "back": "episode",
    "silent_after": 12.5,
    "policy": "fallback",
}


def test_the_least_that_must_be_chosen() -> None:
    rules = read_rules(LEAST)
    assert rules == Rules("carry_on", "fallback")
    assert (rules.severity, rules.formulas, rules.hold, rules.back) == (("critical",), None, 1, "resolved")
    assert read_rules(rules) is rules


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml", ""])
def test_a_file_is_read_as_json_or_yaml_by_its_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rules{suffix}"
    yaml = "when_blind: carry_on # a comment\nwhen_silent: fallback\nseverity: critical\n"
    path.write_text(yaml if suffix in {".yaml", ".yml"} else json.dumps(LEAST))
    assert read_rules(path) == read_rules(str(path)) == Rules("carry_on", "fallback")
    path.write_text(json.dumps(FULL))
    rules = read_rules(path)
    assert (rules.severity, rules.formulas) == (("warning", "critical"), ("watch",))
    assert {name: getattr(rules, name) for name in FULL.keys() - {"severity", "formulas"}} == {
        name: value for name, value in FULL.items() if name not in {"severity", "formulas"}
    }


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"when_blind": "pray"}, "when_blind is 'pray'; choose carry_on or fallback"),
        ({"when_silent": None}, "when_silent is None; choose carry_on or fallback"),
        ({"back": "soon"}, "back is 'soon'; choose resolved or episode or never"),
        ({"only_if_helps": 1}, "only_if_helps is 1; give true or false"),
        ({"only_if_robust": "yes"}, "only_if_robust is 'yes'"),
        ({"hold": 0}, "hold is 0; give a number of steps, 1 or more"),
        ({"hold": 1.5}, "hold is 1.5"),
        ({"hold": True}, "hold is True"),
        ({"silent_after": 0}, "silent_after is 0; give a number of seconds above 0"),
        ({"silent_after": float("inf")}, "silent_after is inf"),
        ({"silent_after": float("nan")}, "silent_after is nan"),
        ({"silent_after": "30s"}, "silent_after is '30s'"),
        ({"severity": []}, "severity is []; give a list of names"),
        ({"severity": [1]}, "severity is [1]"),
        ({"formulas": {"a": 1}}, "formulas is {'a': 1}"),
        ({"policy": 1}, "policy is 1; give the name of a policy"),
        ({"severty": "critical"}, "unknown rule 'severty'; there is back, formulas, hold,"),
    ],
)
def test_a_wrong_rule_is_refused_by_name(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ClientError, match=re.escape(problem)):
        read_rules({**LEAST, **changes})


@pytest.mark.parametrize("name", LEAST)
def test_what_happens_without_the_monitor_has_no_default(name: str) -> None:
    with pytest.raises(ClientError, match=re.escape(f"{name} is missing: choose carry_on or fallback")):
        read_rules({key: value for key, value in LEAST.items() if key != name})
    with pytest.raises(ClientError, match="what happens while the monitor is blind or silent must be chosen"):
        read_rules(None)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rules.json", b"{", "not JSON"),
        ("rules.json", b"[" * 20_000, "not JSON"),
        ("rules.json", b"[]", "the rules are not a map"),
        ("rules.json", b"\xff", "not JSON"),
        ("rules.yaml", b"a: [", "not YAML"),
        ("rules.yaml", b"!!python/object:os.system {}", "not YAML"),
        ("rules.yaml", b"", "the rules are not a map"),
        ("rules.json", b" " * 70_000, "longer than 65536 bytes"),
        ("rules.json", None, "cannot be read: No such file"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes | None, problem: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClientError, match=re.escape(f"{path}: {problem}")):
        read_rules(path)


def test_yaml_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, imported = tmp_path / "rules.yaml", builtins.__import__

    def without_yaml(name: str, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - arguments of __import__
        if name == "yaml":
            raise ImportError(name)
        return imported(name, *rest, **more)

    path.write_text(json.dumps(LEAST))
    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(ClientError, match=re.escape("pip install 'cfmon-client[yaml]'")):
        read_rules(path)


def test_rules_of_another_type_are_refused() -> None:
    with pytest.raises(ClientError, match="the rules are a int; give a file, a map or Rules"):
        read_rules(3)  # type: ignore[arg-type] # on purpose
