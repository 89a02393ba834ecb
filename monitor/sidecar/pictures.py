"""Pictures of alarms for the status page, each drawn by a process of its own.

Drawing takes a second of computing and more; in a thread of ours verdicts would wait for it. A process can also be
given up when it takes too long, and takes nothing with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from monitor.sidecar.tasks import end_tasks

__all__ = ["Pictures"]

COMMAND: Final = (sys.executable, "-m", "monitor", "explain", "-", "-o", "-")
KEPT: Final = 64
"""Pictures kept, of some 50 KB each."""
WAITING: Final = 16
"""Pictures waited for at once."""
PATIENCE: Final = 60.0
"""Seconds for one picture."""
POLITE: Final = 10
"""How far behind others its process stands for the processor."""


class Pictures:
    """Draws what is asked for, one after the other, and remembers it. Used from the server's loop.

    `evidence` gives a document by its id, None if there is none; `objects` is the folder of models and policies.
    `command` reads a document and writes its picture.
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
        if task is None:
            content = self._evidence(name)
            if content is None:
                return b"", "there is no such evidence"
            if len(self._drawing) >= WAITING:
                return b"", f"{WAITING} pictures are waited for already; ask again later"
            self._drawing[name] = asyncio.get_running_loop().create_task(self._draw(content))
            return None
        if not task.done():
            return None
        drawn, problem = self._drawing.pop(name).result()
        if not problem:
            self._drawn[name] = drawn
            if len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
        return drawn, problem

    async def close(self) -> None:
        """Give up what is being drawn."""
        tasks = list(self._drawing.values())
        self._drawing.clear()
        await end_tasks(tasks)

    async def _draw(self, content: bytes) -> tuple[bytes, str]:
        async with self._turn:
            return await self._run(content)

    async def _run(self, content: bytes) -> tuple[bytes, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=_step_back
        )
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


def _step_back() -> None:
    os.nice(POLITE)
