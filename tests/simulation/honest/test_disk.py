"""The simulated disk does to SQLite what a real one does, and SQLite does what the simulation takes for granted."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from random import Random

import pytest

from tests.simulation.disk import Disk, files_of, lose_power


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database as the store does."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def test_a_full_disk_raises_what_sqlite_raises(tmp_path: Path) -> None:
    database = open_database(tmp_path / "real.sqlite")
    database.execute("CREATE TABLE rows (content BLOB)")
    database.execute("PRAGMA max_page_count=4")
    with pytest.raises(sqlite3.OperationalError) as real:
        database.execute("INSERT INTO rows VALUES (zeroblob(100000))")
    database.close()
    disk = Disk()
    disk.full = True
    with pytest.raises(sqlite3.OperationalError) as simulated:
        disk.take()
    assert str(simulated.value) == str(real.value)
    assert simulated.value.sqlite_errorcode == real.value.sqlite_errorcode
    assert disk.refused


def test_sqlite_has_a_torn_transaction_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "real" / "store.sqlite"
    path.parent.mkdir()
    database = open_database(path)
    database.execute("CREATE TABLE rows (n INTEGER, content BLOB)")
    found: set[int] = set()
    for seed in range(15):
        draw = Random(seed)
        database.execute("DELETE FROM rows")
        database.execute("INSERT INTO rows VALUES (1, 'kept')")
        before = files_of(path)
        database.execute("BEGIN")
        for n in range(2, 2 + draw.choice((1, 5))):
            database.execute("INSERT INTO rows VALUES (?, ?)", (n, bytes(draw.choice((20, 3000)))))
        whole = database.execute("SELECT count(*) FROM rows").fetchone()[0]
        database.execute("COMMIT")
        copy = shutil.copytree(path.parent, tmp_path / f"after-{seed}") / path.name
        lose_power(copy, before, b"", draw)
        again = open_database(copy)
        [(rows,)] = again.execute("SELECT count(*) FROM rows")
        assert again.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        again.close()
        assert rows in {1, whole}
        found.add(rows == whole)
    database.close()
    assert found == {True, False}
