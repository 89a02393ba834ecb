"""Pictures of alarms for the status page, each drawn by a process of its own.

Drawing takes a second of computing and more; in a thread of ours verdicts would wait for it. A process can also be
given up when it takes too long, and takes nothing with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from monitor.sidecar.tasks import end_tasks

__all__ = ["Pictures"]

COMMAND: Final = (sys.executable, "-P", "-m", "monitor", "explain", "-", "-o", "-")
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


class Pictures:
    """Draws what is asked for, one after the other, and remembers it. Used from the server's loop.

    `evidence` gives a document by its id, None if there is none; `objects` is the folder of models and policies.
    `command` reads a document and writes its picture; it is given `--id`, the id that the document must have.
    """

    def __init__(
        self, evidence: Callable[[str], bytes | None], objects: Path, command: Sequence[str] = COMMAND
    ) -> None:
        self._evidence = evidence
        self._command = (*command, "--objects", str(objects))
        self._drawn: OrderedDict[str, bytes] = OrderedDict()
        self._drawing: dict[str, asyncio.Task[tuple[bytes, str]]] = {}
        self._turn = asyncio.Lock()

    def look(self, name: str) -> tuple[bytes, str] | None:
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
            self._make_room()
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

    def _make_room(self) -> None:
        """Whoever asked may have gone away, and nobody fetches what was drawn."""
        for name, task in list(self._drawing.items()):
            if task.done():
                self._take(name, task)

    async def _draw(self, name: str, content: bytes) -> tuple[bytes, str]:
        async with self._turn:
            try:
                return await self._run(name, content)
            except OSError as error:  # no memory for a process, or too many of them
                return b"", f"it cannot be drawn now: {error.strerror or error}"

    async def _run(self, name: str, content: bytes) -> tuple[bytes, str]:
        pipe = asyncio.subprocess.PIPE
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        process = await asyncio.create_subprocess_exec(
            *self._command, "--id", name, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        # From here and not by `preexec_fn`, which runs Python between fork and exec: with other threads that can hang.
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + POLITE, LEAST))
        try:
            out, err = await asyncio.wait_for(process.communicate(content), PATIENCE)
        except TimeoutError:
            return b"", f"drawing it took longer than {PATIENCE:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        lines = err.decode(errors="replace").strip().splitlines()
        return (out, "") if process.returncode == 0 else (b"", lines[-1] if lines else "drawing failed")
