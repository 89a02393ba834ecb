"""Every case in which the engine and the oracle once disagreed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.truth.generate import Case
from tests.truth.judge import rejudge

FOUND = sorted(Path(__file__).with_name("found").glob("*.json"))


@pytest.mark.parametrize("file", FOUND, ids=[file.stem for file in FOUND])
def test_it_is_settled(file: Path) -> None:
    assert not rejudge(Case.from_json(json.loads(file.read_text())))
