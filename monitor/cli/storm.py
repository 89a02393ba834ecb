"""Let Storm, in another process, build models in the PRISM language and JANI. The result is read as UMB.

stormpy has the GPL licence. It is not a dependency and is not imported here. A separate program,
`converters/storm_to_umb.py`, imports stormpy, in any Python interpreter that has it. A model of a few lines may have
any number of states, so the program has limits of time and memory. When this process ends for any reason, the program
ends too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitor.cli.input_files import data_file
from monitor.cli.interrupts import at_signal
from monitor.errors import ConfigError, ModelError
from monitor.model.formats import PROGRAMS

if TYPE_CHECKING:
    from monitor.model.mdp import MDP

MISSING, REFUSED, TOO_LARGE = 3, 4, 5
"""Exit codes of `converters/storm_to_umb.py`."""

GIB: Final = 1 << 30
_MOST: Final = 1_000_000
_CONSTANT: Final = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*[A-Za-z0-9_.+/-]+\s*\Z")
_LONGEST_REASON: Final = 300
_MOST_SAID: Final = 1 << 16
"""Number of bytes read from the end of the program's messages."""


@dataclass(frozen=True)
class Limits:
    """Limits for Storm: `seconds` of time, `gib` of memory.

    Raises ConfigError if a limit is not positive or too large.
    """

    seconds: float = 600.0
    gib: float = 4.0

    def __post_init__(self) -> None:
        for name, value in (("--timeout", self.seconds), ("--memory", self.gib)):
            if not 0 < value <= _MOST:
                raise ConfigError(f"{name} {value:g}: give a number above 0, of at most {_MOST:,}")


def is_program(source: str) -> bool:
    """Return whether the source is a file in the PRISM language or JANI, judged by the file's suffix."""
    return source.endswith(PROGRAMS)


def built_by_storm(
    source: str, constants: Sequence[str], rewards: str | None, python: Path | None, limits: Limits
) -> MDP:
    """Return the model that Storm builds from a description.

    Args:
        source: file in the PRISM language or JANI.
        constants: `NAME=VALUE` for each constant that the file leaves open.
        rewards: the reward structure, if there are several.
        python: interpreter that has stormpy; this one if None.
        limits: time and memory.

    Raises:
        ModelError: stormpy is missing, Storm refuses the model or needs more than the limits, or the result is not
            supported.
    """
    for constant in constants:
        if not _CONSTANT.match(constant):
            raise ModelError(f"--constant {constant!r}: write NAME=VALUE, such as N=10")
    if not Path(source).is_file():
        raise ModelError(f"model {source}: cannot be read (there is no such file)")
    from monitor.authoring.formats.umb import read_umb  # noqa: PLC0415 - keep `cfmon --help` light

    folder = Path(tempfile.mkdtemp(prefix="cfmon-"))
    try:
        with at_signal(lambda: shutil.rmtree(folder, ignore_errors=True)):
            target = folder / "model.umb"
            _run(source, target, ",".join(constants), str(python or sys.executable), limits)
            return read_umb(target.read_bytes(), source, rewards, limit=int(limits.gib * GIB))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(source: str, target: Path, constants: str, python: str, limits: Limits) -> None:
    program = [python, str(data_file("converters/storm_to_umb.py")), str(Path(source).absolute()), str(target)]
    said = target.with_name("said")
    with said.open("wb") as stream:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's interpreter and our program
                [*program, constants, str(int(limits.gib * GIB))],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        except OSError as error:
            raise ModelError(f"--storm-python {python}: cannot be run ({error.strerror})") from error
    with at_signal(lambda: _kill(process)):
        try:
            code = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"model {source}: Storm has not built it within {limits.seconds:g} seconds; allow more with --timeout "
                "SECONDS, or give a smaller model"
            ) from None
        finally:
            _kill(process)
    _check(source, code, _last_words(said), python, limits)
    if not target.is_file():
        raise ModelError(f"model {source}: Storm cannot build it: its process ended with code 0 and no model")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and all processes that it has started, and wait for it."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.wait()


def _check(source: str, code: int, said: str, python: str, limits: Limits) -> None:
    """Raise ModelError unless the program ended without an error."""
    match code:
        case 0:
            return
        case _ if code == MISSING:
            raise ModelError(
                f"model {source}: needs stormpy, which {python} lacks ({_last(said)}). It is GPL and not part "
                "of this package: install it in an environment of its own, python3 -m venv storm && storm/bin/pip "
                "install 'stormpy>=2.0', and add --storm-python storm/bin/python"
            )
        case _ if code == REFUSED and "bad_alloc" not in said:
            reason = _last(said)
            hint = " (give their values: --constant NAME=VALUE)" if "undefined constants" in reason else ""
            raise ModelError(f"model {source}: Storm cannot build it: {reason}{hint}")
        case _ if code in (TOO_LARGE, REFUSED) or "bad_alloc" in said or code == -signal.SIGXFSZ:
            raise ModelError(
                f"model {source}: Storm needs more than {limits.gib:g} GiB of memory for it; allow more with --memory "
                "GIB, or give a smaller model"
            )
        case _ if code < 0:
            raise ModelError(f"model {source}: Storm cannot build it: its process was ended by signal {-code}")
        case _:
            raise ModelError(f"model {source}: Storm cannot build it: its process ended with code {code}")


def _last_words(said: Path) -> str:
    with said.open("rb") as opened:
        opened.seek(max(0, said.stat().st_size - _MOST_SAID))
        return opened.read(_MOST_SAID).decode("utf-8", "replace")


def _last(output: str) -> str:
    """Return the last paragraph of the output as one line."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", output) if part.strip()]
    return (paragraphs or ["no reason given"])[-1][:_LONGEST_REASON]
