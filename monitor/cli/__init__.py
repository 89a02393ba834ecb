"""`cfmon`: the command line. What a library user needs lives in the other rooms; here are words, tables and exit codes.

Exit codes: 0 fine, 1 no (a check fails, a verification disagrees), 2 the input is wrong, 3 undecided, 70 a bug.
"""

from __future__ import annotations

import os
import sys
import warnings

from monitor.cli.leaving import INTERRUPTED, leave_at_once
from monitor.errors import MonitorError

__all__ = ["main"]

WRONG_INPUT = 2
BUG = 70
"""sysexits.h's EX_SOFTWARE."""


def main() -> None:
    """Run the command that `sys.argv` names and exit with its code; the only place where exceptions become codes."""
    leave_at_once()
    from monitor.cli.app import app  # noqa: PLC0415 - the agent process imports this package and needs no commands
    from monitor.cli.output import printable, show_warning  # noqa: PLC0415 - likewise

    warnings.showwarning = show_warning
    try:
        app(prog_name="cfmon")
    except MonitorError as error:
        shown = "\n".join(map(printable, str(error).split("\n")))  # it may quote what a stranger wrote
        sys.stderr.write(f"cfmon: {shown}\n")
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception:  # noqa: BLE001 - whatever is left is our fault, and must say so
        import traceback  # noqa: PLC0415 - what comes before `leave_at_once` is kept short

        traceback.print_exc()
        sys.stderr.write("cfmon: this is a bug; please report it with the lines above\n")
        sys.exit(BUG)
