"""The command line, `cfmon`: texts, tables and exit codes. A library user needs only the other packages.

Exit codes: 0 success, 1 no (a check fails, a verification disagrees), 2 invalid input, 3 undecided, 70 a bug.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings

from monitor.cli.interrupts import INTERRUPTED, exit_immediately
from monitor.errors import MonitorError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

WRONG_INPUT = 2
BUG = 70
"""sysexits.h's EX_SOFTWARE."""


def main() -> None:
    """Run the command in `sys.argv` and exit with its code. Only this function turns exceptions into exit codes."""
    exit_immediately()
    from monitor.cli.app import app  # noqa: PLC0415 - the agent process imports this package but no commands
    from monitor.cli.output import show_warning  # noqa: PLC0415 - likewise

    warnings.showwarning = show_warning
    try:
        app(prog_name="cfmon")
    except MonitorError as error:
        shown = "\n".join(map(printable, str(error).split("\n")))  # the message may quote untrusted input
        sys.stderr.write(f"cfmon: {shown}\n")
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            _report_bug()
        file = printable(str(error.filename or "a file"))
        sys.stderr.write(f"cfmon: {file} cannot be written: {error.strerror}; make space for it\n")
        sys.exit(WRONG_INPUT)
    except Exception:  # noqa: BLE001 - any other exception is a bug and is reported as one
        _report_bug()


def _report_bug() -> NoReturn:
    """Print the exception that is being handled, and exit."""
    import traceback  # noqa: PLC0415 - imports before `exit_immediately` are kept few

    traceback.print_exc()
    sys.stderr.write("cfmon: this is a bug; please report it with the lines above\n")
    sys.exit(BUG)
