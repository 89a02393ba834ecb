"""What every command says in the same way: exit codes, one JSON document, progress on a terminal's stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

import typer

__all__ = ["ExitCode", "finish", "print_json", "progress", "say"]


class ExitCode(IntEnum):
    """What a command's exit status means; the other two, 2 and 70, are given where exceptions arrive."""

    FINE = 0
    NO = 1
    UNDECIDED = 3


def finish(code: ExitCode) -> NoReturn:
    """End the command with this code."""
    raise typer.Exit(int(code))


def say(line: str = "") -> None:
    """One line on stdout, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_json(document: object) -> None:
    """The one JSON document of `--json`. NaN and infinity, which JSON lacks, become null."""
    say(json.dumps(_plain(document), indent=2, ensure_ascii=False))


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on stderr, if it is a terminal, that work is going on; leaves no trace."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

    with Console(stderr=True).status(what):
        yield


def _plain(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
