"""Models in the PRISM language and JANI: built by Storm in another process, and read as UMB.

stormpy is GPL. It is neither a dependency nor imported here: a separate program, `converters/storm_to_umb.py`, uses it,
in whichever Python has it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitor.cli.files import data_file
from monitor.errors import ModelError
from monitor.model.formats import PROGRAMS

if TYPE_CHECKING:
    from monitor.model.mdp import MDP

__all__ = ["built_by_storm", "is_program"]

MISSING, REFUSED = 3, 4
"""Exit codes of the program."""

_CONSTANT: Final = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*[A-Za-z0-9_.+/-]+\s*\Z")
_LONGEST_REASON: Final = 300


def is_program(source: str) -> bool:
    """Return whether the source is a file in the PRISM language or JANI, by its suffix."""
    return source.endswith(PROGRAMS)


def built_by_storm(source: str, constants: Sequence[str], rewards: str | None, python: Path | None) -> MDP:
    """Return the model that Storm builds from a description.

    Args:
        source: file in the PRISM language or JANI.
        constants: `NAME=VALUE` for each constant that the file leaves open.
        rewards: the reward structure, if there are several.
        python: interpreter that has stormpy; this one if None.

    Raises:
        ModelError: stormpy is missing, Storm refuses the model, or the result is not supported.
    """
    for constant in constants:
        if not _CONSTANT.match(constant):
            raise ModelError(f"--constant {constant!r}: write NAME=VALUE, such as N=10")
    if not Path(source).is_file():
        raise ModelError(f"model {source}: cannot be read (there is no such file)")
    from monitor.model.umb import read_umb  # noqa: PLC0415 - keep `cfmon --help` light

    with tempfile.TemporaryDirectory(prefix="cfmon-") as folder:
        target = Path(folder) / "model.umb"
        _run(source, target, ",".join(constants), python)
        return read_umb(target.read_bytes(), source, rewards)


def _run(source: str, target: Path, constants: str, python: Path | None) -> None:
    program = str(python or sys.executable)
    command = [
        program,
        str(data_file("converters/storm_to_umb.py")),
        str(Path(source).absolute()),
        str(target),
        constants,
    ]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    except OSError as error:
        raise ModelError(f"--storm-python {program}: cannot be run ({error.strerror})") from error
    if ran.returncode == MISSING:
        raise ModelError(
            f"model {source}: needs stormpy, which {program} lacks ({_last(ran.stderr)}). It is GPL and not part "
            "of this package: install it in an environment of its own, python3 -m venv storm && storm/bin/pip install "
            "'stormpy>=2.0', and add --storm-python storm/bin/python"
        )
    if ran.returncode or not target.is_file():
        reason = _last(ran.stderr) if ran.returncode == REFUSED else f"its process ended with code {ran.returncode}"
        hint = " (give their values: --constant NAME=VALUE)" if "undefined constants" in reason else ""
        raise ModelError(f"model {source}: Storm cannot build it: {reason}{hint}")


def _last(output: str) -> str:
    """Return the last paragraph of the output in one line."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", output) if part.strip()]
    return (paragraphs or ["no reason given"])[-1][:_LONGEST_REASON]
