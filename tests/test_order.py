"""The lists by which tests are put in order and traced name what there is, and what is marked as untraced is."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import LONG_FILES, TESTS, UNTRACED


def test_every_file_and_folder_named_exists() -> None:
    assert [name for name in LONG_FILES if not (TESTS / name).is_file()] == []
    assert [name for name in UNTRACED if not (TESTS / name).exists()] == []


@pytest.mark.untraced
def test_what_is_untraced_runs_without_a_tracer() -> None:
    assert sys.gettrace() is None
