"""What `cfmon verify` says of a file is its own word, whatever stands in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from monitor.cli.verified import show
from monitor.evidence.verification import Expected, VerificationReport
from tests.picture.test_explanation import FORMULAS, GRID, evidence_of


def test_no_name_in_the_evidence_can_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    forged = replace(evidence_of(FORMULAS[0], model=GRID), episode="1\x1b[2J\rverified: all agree\n", model="\x9b2J")
    problems = ("value\x1b[8m: 0.5, derived again 0.4",)
    show(Path("alarm\x07.evidence"), VerificationReport(forged, problems, "unchecked", derived_by="engine"), Expected())
    told = capsys.readouterr().out
    assert all(line.isprintable() for line in told.splitlines())
    assert not any(line.startswith("verified") for line in told.splitlines())
    assert "NOT VERIFIED: value?[8m: 0.5" in told
