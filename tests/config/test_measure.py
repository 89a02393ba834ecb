"""The script that chose the thresholds of the shipped configurations runs."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "config" / "measure.py"


def test_verdicts_and_alarms_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "icu-sepsis", "--seeds", "1", "--steps", "5"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(r"^verdicts (\w+ \d+\.\d,? ?)+$", printed, re.MULTILINE)  # --steps is rounded up to whole episodes
    assert re.search(r"^an alarm resolves within its episode for \d of 1 seeds", printed, re.MULTILINE)
