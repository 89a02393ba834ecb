"""Counts beside a learned model that say little and hold much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.authoring.learning.companion import load_learner, load_part
from monitor.errors import ModelError
from tests.bombs import archive, array, at_most, header

BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "unpacks to more": (lambda: archive({"about": bytes(60 << 20)}), "unpacks to more than the limit of 8,388,608"),
    "many members": (lambda: archive({f"{n:0300}": b"" for n in range(2000)}), "far more members"),
    "declared": (lambda: archive({"about": header("<i8", "(1152921504606846975,)")}), "is damaged"),
    "no archive": (lambda: array(range(10)), "is damaged"),
    "empty": (lambda: b"", "is damaged"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_counts_that_unpack_to_more_than_the_limit_are_refused(
    bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, says = BOMBS[bomb]
    file = tmp_path / "m.learn.npz"
    file.write_bytes(make())
    monkeypatch.setattr("monitor.authoring.learning.companion.MAX_UNPACKED_BYTES", 8 << 20)
    for read in (load_learner, load_part):
        with at_most(8 << 20), pytest.raises(ModelError, match=says):
            read(file)


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "m.learn.npz"
    with file.open("wb") as opened:
        opened.truncate(5 << 30)
    with pytest.raises(ModelError, match="is larger than the limit of 4,294,967,296 bytes"):
        load_learner(file)
