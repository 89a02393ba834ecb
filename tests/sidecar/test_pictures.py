"""Pictures drawn by a process of their own: kept, refused, given up."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from monitor.sidecar.web import pictures
from monitor.sidecar.web.pictures import Pictures
from tests.servers import PATIENCE, children, wait_until
from tests.sidecar.alarms import alarm


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "PATIENCE", PATIENCE)


async def drawn(of: Pictures, name: str) -> tuple[bytes, str]:
    async with asyncio.timeout(PATIENCE):
        while (found := of.get(name)) is None:  # noqa: ASYNC110 - as the page asks again
            await asyncio.sleep(0.005)
    return found


def instead(script: str) -> tuple[str, ...]:
    """A script that stands in for the command that draws."""
    return sys.executable, "-I", "-S", "-c", script


FOR_EVER = instead("import time; time.sleep(1000)")


def test_what_is_no_evidence_is_refused_in_one_line_and_nothing_in_the_working_directory_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "__init__.py").write_text("print('not ours', end='')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)

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
        assert f"--id says {asked.id}, the document has {exchanged.id}" in problem
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
        assert of.get("a") is None
        assert of.get("b") is None
        found = of.get("c")
        assert found is not None
        assert "try again later" in found[1]
        await of.close()

    asyncio.run(scene())


def test_those_that_nobody_fetches_do_not_keep_others_from_being_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pictures, "WAITING", 2)

    async def scene() -> None:
        of = Pictures({name: name.encode() for name in "abc"}.get, tmp_path, instead("print('drawn')"))
        assert (of.get("a"), of.get("b")) == (None, None)
        async with asyncio.timeout(PATIENCE):
            while (refused := of.get("c")) is not None:
                assert "try again later" in refused[1]
                await asyncio.sleep(0.005)
        assert await drawn(of, "c") == (b"drawn\n", "")
        assert of.get("a") == (b"drawn\n", "")  # kept for whoever comes back

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


def test_where_it_may_not_be_put_behind_us_it_is_drawn_all_the_same_and_none_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = children()
    monkeypatch.setattr(os, "setpriority", refused)
    monkeypatch.setattr(Path, "write_bytes", refused)

    async def scene() -> None:
        of = Pictures(dict.fromkeys("abc", b"").get, tmp_path, instead("print('drawn')"))
        for name in "abc":
            assert await drawn(of, name) == (b"drawn\n", "")

    asyncio.run(scene())
    assert children() <= before


def test_where_memory_runs_out_it_is_ended_before_us(tmp_path: Path) -> None:
    script = "import sys; sys.stdin.read(); print(open('/proc/self/oom_score_adj').read().strip(), end='')"

    async def scene() -> None:
        assert await drawn(Pictures({"a": b""}.get, tmp_path, instead(script)), "a") == (b"1000", "")

    asyncio.run(scene())


def test_never_are_two_drawn_at_once(tmp_path: Path) -> None:
    script = f"""
import os
file = {str(tmp_path / "busy")!r}
os.close(os.open(file, os.O_CREAT | os.O_EXCL))
os.unlink(file)
print("alone", end="")
"""

    async def scene() -> None:
        of = Pictures(dict.fromkeys("abcdef", b"").get, tmp_path, instead(script))
        assert [of.get(name) for name in "abcdef"] == [None] * 6
        assert [await drawn(of, name) for name in "abcdef"] == [(b"alone", "")] * 6

    asyncio.run(scene())


def test_one_that_takes_too_much_memory_is_reported_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pictures, "MEMORY", 64 << 20)
    script = "import sys; sys.stdin.read(); print(len(bytearray(100 << 20)))"

    async def scene() -> None:
        picture, problem = await drawn(Pictures({"a": b""}.get, tmp_path, instead(script)), "a")
        assert picture == b""
        assert "takes more than 64 MiB of memory" in problem

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('no picture of that')", "no picture of that"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "drawing it was ended by signal 9"),
        ("import sys; sys.exit(3)", "drawing failed"),
        (FOR_EVER[-1], "drawing it took longer than 1 s"),
    ],
)
def test_a_failure_is_reported_counted_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, script: str, said: str
) -> None:
    before, failures = children(), []
    if "sleep" in script:
        monkeypatch.setattr(pictures, "PATIENCE", 0.6)

    async def scene() -> None:
        of = Pictures({"a": b""}.get, tmp_path, instead(script), failed=lambda: failures.append(1))
        assert await drawn(of, "a") == (b"", said)

    asyncio.run(scene())
    assert failures == [1]
    assert f"no picture of evidence a: {said}" in caplog.text
    assert children() <= before


def test_where_there_is_no_thread_that_is_said_and_no_process_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = children()

    async def scene() -> None:
        of = Pictures({"a": b""}.get, tmp_path, FOR_EVER)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            picture, problem = await drawn(of, "a")
        assert (picture, "no thread can be started" in problem) == (b"", True)

    asyncio.run(scene())
    assert children() <= before


def test_one_that_is_given_up_at_the_end_is_gone(tmp_path: Path) -> None:
    before = children()

    async def scene() -> None:
        of = Pictures({"a": b""}.get, tmp_path, FOR_EVER)
        assert of.get("a") is None
        async with asyncio.timeout(PATIENCE):
            while children() <= before:  # noqa: ASYNC110 - what is waited for comes from outside this loop
                await asyncio.sleep(0.01)
        await of.close()

    asyncio.run(scene())
    wait_until(lambda: children() <= before, "no process is left")
