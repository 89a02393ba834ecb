"""Pictures of alarms for the status page, each drawn by a process of its own.

Drawing takes a second of computing and more; in a thread of ours verdicts would wait for it. A process can also be
given up when it takes too long, and takes nothing with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from monitor.sidecar.tasks import end_tasks, in_thread

__all__ = ["Pictures"]

LOG: Final = logging.getLogger("monitor.http")
COMMAND: Final = (sys.executable, "-P", "-m", "monitor", "explain", "-", "--large", "-o", "-")
"""`-P`: modules are not looked for in the working directory, which may be the folder of the store: what lies there is
data, and never run.
"""
OURS: Final = "CFMON_"
"""What the environment tells a sidecar alone, its password perhaps: who draws needs none of it."""
KEPT: Final = 64
"""Pictures kept, of some 50 KB each."""
WAITING: Final = 16
"""Pictures waited for at once."""
PATIENCE: Final = 60.0
"""Seconds for one picture."""
POLITE: Final = 10
"""How far behind us its process stands for the processor."""
LEAST: Final = 19
"""Further behind nobody can stand."""
MEMORY: Final = 1 << 30
"""Bytes that the process may use: it shares the memory of a service or container with the monitor."""
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Else numpy and scipy start one for each core, each with buffers of its own, and use none of them."""
SACRIFICED: Final = b"1000"
"""Where memory runs out, the process that draws is ended before any other: the monitor must not be."""


class Pictures:
    """Draws what is asked for, one after the other, and remembers it. Used from the server's loop.

    `evidence` gives a document by its id, None if there is none; `objects` is the folder of models and policies.
    `command` reads a document and writes its picture; it is given `--id`, the id that the document must have. `failed`
    is called for each that could not be drawn.
    """

    def __init__(
        self,
        evidence: Callable[[str], bytes | None],
        objects: Path,
        command: Sequence[str] = COMMAND,
        *,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._failed = failed
        self._evidence = evidence
        self._command = (*command, "--objects", str(objects))
        self._drawn: OrderedDict[str, bytes] = OrderedDict()
        self._drawing: dict[str, asyncio.Task[tuple[bytes, str]]] = {}
        self._turn = asyncio.Lock()

    def get(self, name: str) -> tuple[bytes, str] | None:
        """The picture as SVG, or an empty one and why; None while it is drawn: ask again."""
        if name in self._drawn:
            self._drawn.move_to_end(name)
            return self._drawn[name], ""
        task = self._drawing.get(name)
        if task is not None:
            return self._take(name, task) if task.done() else None
        content = self._evidence(name)
        if content is None:
            return b"", "there is no such evidence"
        if len(self._drawing) >= WAITING:
            self._collect_finished()
        if len(self._drawing) >= WAITING:
            return b"", f"{WAITING} pictures are waited for already; ask again later"
        self._drawing[name] = asyncio.get_running_loop().create_task(self._draw(name, content))
        return None

    async def close(self) -> None:
        """Give up what is being drawn."""
        tasks = list(self._drawing.values())
        self._drawing.clear()
        await end_tasks(tasks)

    def _take(self, name: str, task: asyncio.Task[tuple[bytes, str]]) -> tuple[bytes, str]:
        del self._drawing[name]
        drawn, problem = task.result()
        if not problem:
            self._drawn[name] = drawn
            if len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
        return drawn, problem

    def _collect_finished(self) -> None:
        """Whoever asked may have gone away, and nobody fetches what was drawn."""
        for name, task in list(self._drawing.items()):
            if task.done():
                self._take(name, task)

    async def _draw(self, name: str, content: bytes) -> tuple[bytes, str]:
        async with self._turn:
            child = _Child((*self._command, "--id", name))
            try:
                drawn, problem = await in_thread(partial(child.draw, content))
            except OSError as error:  # no memory for a process or a thread, or too many of them
                drawn, problem = b"", f"it cannot be drawn now: {error.strerror or error}"
            finally:
                child.give_up()
        if problem:
            self._failed()
            LOG.warning("no picture of evidence %s: %s", name, problem)
        return drawn, problem


class _Child:
    """One process that draws. Whatever happens, it has ended and was waited for when `draw` returns or raises.

    Not by asyncio, which starts a thread to wait for a process after it has made it: where there is no thread, nobody
    would wait.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._given_up = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def draw(self, content: bytes) -> tuple[bytes, str]:
        """The picture of a document, or an empty one and why. OSError: no process can be made."""
        pipe = subprocess.PIPE
        told = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        with subprocess.Popen(  # noqa: S603 - the command is ours
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env={**told, **ONE_THREAD}
        ) as process:
            self._process = process
            if self._given_up.is_set():
                process.kill()
            try:
                _stand_back(process.pid)
                out, err = process.communicate(content, PATIENCE)
            except subprocess.TimeoutExpired:
                return b"", f"drawing it took longer than {PATIENCE:.0f} s"
            finally:
                process.kill()  # nothing, if it has ended
        if process.returncode < 0:
            return b"", f"drawing it was ended by signal {-process.returncode}"
        if process.returncode != 0 and b"MemoryError" in err:
            return b"", f"drawing it takes more than {MEMORY >> 20} MiB of memory; `cfmon explain` has no such limit"
        lines = err.decode(errors="replace").strip().splitlines()
        return (out, "") if process.returncode == 0 else (b"", lines[-1] if lines else "drawing failed")

    def give_up(self) -> None:
        """End the process if it still runs; called from any thread, before, during or after `draw`."""
        self._given_up.set()
        if self._process is not None:
            self._process.kill()


def _stand_back(pid: int) -> None:
    """Let a process wait for us, bound its memory, and let it die before us.

    What of that is refused, as in a sandbox, is left: it draws all the same.

    From here and not by `preexec_fn`, which runs Python between fork and exec: with other threads that can hang.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, 0) + POLITE, LEAST))
    with suppress(OSError, ValueError):  # a lower limit may be in force already
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(SACRIFICED)
