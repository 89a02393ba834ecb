"""Warming: an agent lives in memory and every question is asked; a wrong configuration is told."""

from pathlib import Path

import pytest

from monitor.cli.warm import main
from tests.tiers import slow

CONFIG = Path(__file__).parents[2] / "config"


@slow
def test_every_kind_of_question_is_asked_then_those_of_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("warm: every kind of formula, ")
    assert main([str(CONFIG / "frozen-lake.yaml")]) == 0
    assert "frozen-lake.yaml, " in capsys.readouterr().out


def test_a_configuration_that_is_not_there_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.startswith("warm: ")
    assert not list(tmp_path.iterdir())
