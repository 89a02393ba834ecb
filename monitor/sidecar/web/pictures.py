"""Pictures of alarms for the status page, each drawn by its own process.

Drawing takes a second of processor time or more. In a thread, it would delay verdicts. A process can also be killed.
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from monitor.sidecar.tasks import end_tasks, in_thread
from monitor.user_code import is_reference

LOG: Final = logging.getLogger("monitor.http")
COMMAND: Final = (sys.executable, "-P", "-m", "monitor", "explain", "-", "--large", "-o", "-")
"""With `-P`, modules are not imported from the working directory, which may be the folder of the store."""
PREFIX: Final = "CFMON_"
"""Prefix of the sidecar's environment variables, which may contain its password. The drawing process does not get
them."""
KEPT: Final = 64
"""Maximum number of cached pictures, about 50 KB each."""
WAITING: Final = 16
"""Maximum number of pending pictures."""
PATIENCE: Final = 60.0
"""Seconds for one picture."""
NICE: Final = 10
"""Increment of the niceness, relative to ours."""
MAX_NICENESS: Final = 19
MEMORY: Final = 1 << 30
"""Maximum memory of the process in bytes. It shares the memory of a service or container with the monitor."""
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Without this, numpy and scipy start an unused thread with its own buffers for each core."""
OOM_SCORE: Final = b"1000"
"""With this score, the kernel kills the drawing process before the monitor when memory runs out."""


def command_for(models: Iterable[str]) -> tuple[str, ...]:
    """Return the command that draws alarms on the configured models. It allows the configured worlds in Python."""
    return (*COMMAND, *(part for model in models if is_reference(model) for part in ("--world", model)))


class Pictures:
    """Cache of pictures, drawn on request one after the other. Used from the server's loop.

    `evidence` returns a document by its id; None if there is none. `objects` is the folder of models and policies.
    `command` reads a document and writes its picture; the option `--id` gives the id that the document must have.
    `failed` is called for each picture that could not be drawn.
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
        """Return the picture as SVG, or empty bytes and the reason; None while it is being drawn."""
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
            return b"", f"{WAITING} pictures are waiting already; try again later"
        self._drawing[name] = asyncio.get_running_loop().create_task(self._draw(name, content))
        return None

    async def close(self) -> None:
        """Cancel pending pictures."""
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
        """Collect finished pictures, whose clients may be gone."""
        for name, task in list(self._drawing.items()):
            if task.done():
                self._take(name, task)

    async def _draw(self, name: str, content: bytes) -> tuple[bytes, str]:
        async with self._turn:
            child = _Child((*self._command, "--id", name))
            try:
                drawn, problem = await in_thread(partial(child.draw, content))
            except OSError as error:  # no memory for a process or thread, or too many exist
                drawn, problem = b"", f"it cannot be drawn now: {error.strerror or error}"
            finally:
                child.kill()
        if problem:
            self._failed()
            LOG.warning("no picture of evidence %s: %s", name, problem)
        return drawn, problem


class _Child:
    """Process that draws a picture. When `draw` returns or raises, the process has ended and was reaped.

    asyncio's processes are not used. After creating a process, asyncio starts a thread to reap it; if this fails,
    nothing reaps the process.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._killed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def draw(self, content: bytes) -> tuple[bytes, str]:
        """Return the picture of a document, or empty bytes and the reason.

        Raises OSError if no process can be created.
        """
        pipe = subprocess.PIPE
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        with subprocess.Popen(  # noqa: S603 - the command is ours
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env={**inherited, **ONE_THREAD}
        ) as process:
            self._process = process
            if self._killed.is_set():
                process.kill()
            try:
                _restrict(process.pid)
                out, err = process.communicate(content, PATIENCE)
            except subprocess.TimeoutExpired:
                return b"", f"drawing it took longer than {PATIENCE:.0f} s"
            finally:
                process.kill()  # no effect if it has ended
        if process.returncode < 0:
            return b"", f"drawing it was ended by signal {-process.returncode}"
        if process.returncode != 0 and b"MemoryError" in err:
            return b"", f"drawing it takes more than {MEMORY >> 20} MiB of memory; `cfmon explain` has no such limit"
        lines = err.decode(errors="replace").strip().splitlines()
        return (out, "") if process.returncode == 0 else (b"", lines[-1] if lines else "drawing failed")

    def kill(self) -> None:
        """Kill the process if it still runs. May be called from any thread, before, during or after `draw`."""
        self._killed.set()
        if self._process is not None:
            self._process.kill()


def _restrict(pid: int) -> None:
    """Lower a process's priority, bound its memory, and raise its OOM score, as far as the system permits.

    `preexec_fn` is not used, because it runs Python between fork and exec and can deadlock with threads.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, MAX_NICENESS))
    with suppress(OSError, ValueError):  # a lower limit may be in force already
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(OOM_SCORE)
