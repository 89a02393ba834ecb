"""Errors, named by the input that causes them.

Every error a user can cause derives from `MonitorError` and says what is wrong, where, and how to fix it.
Any other exception that leaves the package is a bug.
"""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ConfigError",
    "EvidenceError",
    "FormulaError",
    "InputError",
    "LimitError",
    "Mistakes",
    "ModelError",
    "ModelWarning",
    "MonitorError",
    "PathError",
    "PolicyError",
    "RecordingError",
    "brief",
    "to_install",
]


def to_install(extra: str) -> str:
    """Return the command that installs an extra; it runs in a clone, because no package index has the package."""
    return f"pip install '.[{extra}]' in a clone"


def brief(error: BaseException) -> str:
    """Return the first line of another library's error, at most 200 characters; its type if it has no message."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def printable(text: str) -> str:
    """Return `text` with `?` for every control character, because untrusted text must not control the terminal."""
    return "".join(character if character.isprintable() or character == "\t" else "?" for character in text)


class MonitorError(Exception):
    """Base of every error the user can cause."""


class InputError(MonitorError):
    """An unusable message on the stream. It is counted under `reason`; the stream goes on.

    `reason` is a short machine-readable word (a label of `cfmon_rejected_total`), `detail` a sentence for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class FormulaError(MonitorError):
    """A formula that cannot be parsed or does not fit the model. The message shows line, column and a caret.

    `line` and `column` count from 1; `text` is the whole formula.
    """

    def __init__(self, problem: str, text: str, line: int, column: int) -> None:
        lines = text.split("\n")
        shown = (
            "".join(c if c.isprintable() or c == "\t" else " " for c in lines[line - 1]) if line <= len(lines) else ""
        )
        start = max(0, column - 81)  # a line too long for a terminal is shown around the caret
        caret = "".join(c if c == "\t" else " " for c in shown[start : column - 1].ljust(column - 1 - start)) + "^"
        shown = shown[start : start + 120]
        super().__init__(f"formula, line {line}, column {column}: {problem}\n  {shown}\n  {caret}")
        self.problem = problem
        self.text = text
        self.line = line
        self.column = column


class ModelError(MonitorError):
    """A malformed model. If one row is wrong, the message names it."""


class ModelWarning(UserWarning):
    """A model differs from the source it was read from, or from the file it was written to."""


class PolicyError(MonitorError):
    """A policy that is missing, altered, of the wrong shape, or does not fit the model."""


class ConfigError(MonitorError):
    """A wrong configuration; raised before anything connects."""


class PathError(MonitorError):
    """A path that does not fit the model, for instance with an impossible transition."""


class EvidenceError(MonitorError):
    """An evidence file that is unreadable, or whose verdict cannot be derived again."""


class RecordingError(MonitorError):
    """A recording that is unreadable, cut off or damaged. The message says at which event and byte."""


class LimitError(MonitorError):
    """A formula, model or path that is too large. The message says what is too large, its size, and the limit."""


class Mistakes:
    """Collector of user errors, to report all of them and not only the first."""

    def __init__(self) -> None:
        self._found: list[MonitorError] = []

    def __bool__(self) -> bool:
        """True if any error was collected."""
        return bool(self._found)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect a MonitorError that ends the block, and continue after it."""
        try:
            yield
        except MonitorError as error:
            self._found.append(error)

    def raise_all(self) -> None:
        """Raise what was collected: a single error as it is, several as one ConfigError with a line for each."""
        match self._found:
            case []:
                return
            case [only]:
                raise only
            case several:
                raise ConfigError("\n".join(dict.fromkeys(map(str, several)))) from several[0]
