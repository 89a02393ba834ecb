"""Policy tables that say little and hold much: refused before memory is taken for them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from monitor.authoring.policy_export.convert import convert
from monitor.authoring.policy_export.normalisation import read_normalisation
from monitor.authoring.policy_export.original import ExportRequest
from monitor.errors import PolicyError
from monitor.model import MDP
from tests.bombs import at_most, header

ONE = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)])


def refused(file: Path, says: str) -> None:
    with at_most(1 << 20), pytest.raises(PolicyError, match=says):
        convert(ONE, ExportRequest(str(file)))


def test_an_array_that_declares_more_than_there_is(tmp_path: Path) -> None:
    (tmp_path / "p.npy").write_bytes(header("<i8", "(1152921504606846975,)"))
    refused(tmp_path / "p.npy", "cannot be read as a table")


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"mean.npy": bytes(80 << 20), "var.npy": b""}, "unpacks to more than the limit of 67,108,864 bytes"),
        ({f"{n:0300}.npy": b"" for n in range(2000)}, "far more members"),
        ({"mean.npy": header("<i8", "(1152921504606846975,)"), "var.npy": header("<i8", "(1,)")}, "cannot be read"),
    ],
    ids=["unpacks", "many", "declares"],
)
def test_statistics_that_unpack_to_more_than_the_limit(members: dict[str, bytes], says: str, tmp_path: Path) -> None:
    file = tmp_path / "s.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    with at_most(4 << 20), pytest.raises(PolicyError, match=says):
        read_normalisation(str(file), 1)
    with file.open("wb") as opened:
        opened.truncate(1 << 32)
    with pytest.raises(PolicyError, match="it has more than 67,108,864 bytes"):
        read_normalisation(str(file), 1)


@pytest.mark.parametrize(("name", "most"), [("p.npy", 256 << 20), ("p.json", 64 << 20), ("p.csv", 64 << 20)])
def test_a_file_beyond_the_limit_is_not_read(name: str, most: int, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(most + 1)  # it takes no space on the disk
    refused(tmp_path / name, f"it has {most + 1:,} bytes, more than the limit of {most:,}")
