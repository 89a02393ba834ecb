"""The lists by which tests are put in order and traced name files and folders that there are."""

from __future__ import annotations

from tests.conftest import LONG_FILES, TESTS, UNTRACED


def test_every_file_and_folder_named_exists() -> None:
    assert [name for name in LONG_FILES if not (TESTS / name).is_file()] == []
    assert [name for name in UNTRACED if not (TESTS / name).exists()] == []
