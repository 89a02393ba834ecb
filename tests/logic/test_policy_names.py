"""Names of policies: every word of the language is refused, in the same words, wherever policies are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.errors import ConfigError, FormulaError
from monitor.logic import parse
from monitor.logic.policy_names import check_policy_names
from monitor.logic.syntax import RESERVED, Goal
from monitor.referee import derive
from monitor.sidecar.config.load import assemble
from tests.hidden.robot import robot
from tests.sidecar.project import write_project
from tests.worlds.samples import Tank

WORDS = [word for word in RESERVED if word != "nominal"]
NAMES = ["fallback", "dos", "modeled", "bestest", "P1", "True", "Nominal", "deployed", "_"]
TABLE = monitor.MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={})


def readable(name: str) -> bool:
    """Whether a formula can name a policy so."""
    try:
        formula = parse(f"{name}.P>=0.5 [ true ]")
    except FormulaError:
        return False
    return isinstance(formula, Goal) and (formula.world.change.kind, formula.world.change.name) == ("policy", name)


def test_the_words_are_the_names_that_no_formula_can_have() -> None:
    letters = [chr(n) for n in (*range(65, 91), *range(97, 123))]
    spelled = {*re.findall(r"[A-Za-z_]+", (Path(monitor.__file__).parent / "logic/grammar.py").read_text()), *letters}
    names = {name for name in spelled if not name.startswith("__")}
    assert {name for name in names if not readable(name)} == set(RESERVED)


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_refused_wherever_policies_are_given(word: str) -> None:
    expected = f"no policy can be called '{word}', a word of the formula language; rename it"
    robots: dict[str, Any] = {"model": robot(), "path": [(0, 0)], "policies": {"nominal": [0, 0], word: [1, 1]}}
    tables: dict[str, Any] = {"model": TABLE, "path": [(0, 0)], "policies": {"nominal": [0], word: [0]}}
    shut = {"nominal": lambda x: np.zeros(len(x), int), word: lambda x: np.zeros(len(x), int)}
    worlds: dict[str, Any] = {"model": Tank(), "path": [((5.0,), 0, (1.0,))], "policies": shut}
    both = [(answer, about) for answer in (monitor.check, derive) for about in (robots, tables)]
    for answer, about in (*both, (monitor.check, worlds)):
        with pytest.raises(ConfigError, match=re.escape(expected)):
            answer("P=? [ true ]", **about)


@pytest.mark.parametrize("name", NAMES)
def test_other_names_are_taken(name: str) -> None:
    check_policy_names(["nominal", name])
    policies = {"nominal": [0], name: [0]}
    assert monitor.check(f"{name}.P=? [ true ]", model=TABLE, path=[(0, 0)], policies=policies).value == 1.0


@pytest.mark.parametrize("word", ["do", "model", "handover", "X", "optimal"])
def test_a_configuration_refuses_them_with_the_line(word: str, tmp_path: Path) -> None:
    model = monitor.MDP.from_transitions(
        states=2, actions=2, transitions=[(s, a, 1, 1.0) for s in (0, 1) for a in (0, 1)], labels={}
    )
    file = write_project(tmp_path, model)
    file.write_text(file.read_text().replace("careful:", f"{word}:"), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"line 3, policies.{word}: no policy can be called '{word}', a word of the"):
        assemble(file, {})
