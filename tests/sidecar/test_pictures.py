"""Pictures drawn by a process of their own: kept, refused, given up."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from monitor.sidecar import pictures
from monitor.sidecar.pictures import Pictures
from tests.sidecar.alarms import alarm


async def drawn(of: Pictures, name: str) -> tuple[bytes, str]:
    found = of.look(name)
    if found is None:
        await asyncio.wait([of._drawing[name]])
        found = of.look(name)
    assert found is not None
    return found


def instead(script: str) -> tuple[str, ...]:
    """A script that stands in for the command that draws."""
    return sys.executable, "-c", script


FOR_EVER = instead("import time; time.sleep(1000)")


def test_what_is_no_evidence_is_refused_in_one_line(tmp_path: Path) -> None:
    async def scene() -> None:
        of = Pictures({"a": b"no evidence"}.get, tmp_path)
        picture, problem = await drawn(of, "a")
        assert picture == b""
        assert "not one msgpack document" in problem
        assert await drawn(of, "b") == (b"", "there is no such evidence")

    asyncio.run(scene())


def test_no_other_alarm_is_drawn_than_was_asked_for(tmp_path: Path) -> None:
    asked, exchanged = alarm("regret with bounds"), alarm("sampled")
    exchanged.keep(tmp_path)

    async def scene() -> None:
        of = Pictures({asked.id: exchanged.content, exchanged.id: exchanged.content}.get, tmp_path / "objects")
        picture, problem = await drawn(of, asked.id)
        assert picture == b""
        assert f"--id says {asked.id}, the document inside is {exchanged.id}" in problem
        assert (await drawn(of, exchanged.id))[0].startswith(b"<svg")

    asyncio.run(scene())


def test_each_is_drawn_once_and_the_oldest_are_let_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "import sys, os; sys.stdout.write(f'{sys.stdin.read()} {os.nice(0)} {os.getpid()}')"
    behind = min(os.nice(0) + 10, 19)
    monkeypatch.setattr(pictures, "KEPT", 2)

    async def scene() -> None:
        of = Pictures({name: name.encode() for name in "abc"}.get, tmp_path, instead(script))
        first = await drawn(of, "a")
        assert first[0].startswith(b"a %d " % behind)  # behind us
        assert await drawn(of, "a") == first
        await drawn(of, "b")
        await drawn(of, "c")
        assert await drawn(of, "a") != first

    asyncio.run(scene())


def test_one_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pictures, "PATIENCE", 0.05)

    async def scene() -> None:
        assert "longer than" in (await drawn(Pictures({"a": b""}.get, tmp_path, FOR_EVER), "a"))[1]

    asyncio.run(scene())


def test_no_more_wait_than_can_be_drawn_and_at_the_end_none_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pictures, "WAITING", 2)

    async def scene() -> None:
        of = Pictures(lambda _name: b"", tmp_path, FOR_EVER)
        assert of.look("a") is None
        assert of.look("b") is None
        found = of.look("c")
        assert found is not None
        assert "ask again later" in found[1]
        await of.close()

    asyncio.run(scene())


def test_those_that_nobody_fetches_do_not_keep_others_from_being_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pictures, "WAITING", 2)

    async def scene() -> None:
        of = Pictures({name: name.encode() for name in "abc"}.get, tmp_path, instead("print('drawn')"))
        assert (of.look("a"), of.look("b")) == (None, None)
        await asyncio.wait(list(of._drawing.values()))
        assert await drawn(of, "c") == (b"drawn\n", "")
        assert of.look("a") == (b"drawn\n", "")  # kept for whoever comes back

    asyncio.run(scene())


def test_nothing_in_the_working_directory_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "__init__.py").write_text("print('not ours', end='')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)

    async def scene() -> None:
        assert "not ours" not in str(await drawn(Pictures({"a": b"no evidence"}.get, tmp_path), "a"))

    asyncio.run(scene())


def test_who_draws_is_told_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFMON_MQTT__PASSWORD", "hunter2-hunter2")
    script = "import os; print(os.environ.get('CFMON_MQTT__PASSWORD'), 'PATH' in os.environ, end='')"

    async def scene() -> None:
        assert await drawn(Pictures({"a": b""}.get, tmp_path, instead(script)), "a") == (b"None True", "")

    asyncio.run(scene())


def test_where_no_process_can_be_made_that_is_said(tmp_path: Path) -> None:
    async def scene() -> None:
        of = Pictures({"a": b""}.get, tmp_path, (str(tmp_path / "none"),))
        assert await drawn(of, "a") == (b"", "it cannot be drawn now: No such file or directory")

    asyncio.run(scene())
