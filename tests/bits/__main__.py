"""`python -m tests.bits` compares all digests with the stored ones; `--write` stores them.

    python -m tests.bits
    python -m tests.bits rows notices    # some parts only
    python -m tests.bits --write values  # after a change that is meant to change the numbers of this part

Never store digests so that a test passes: they are the numbers from before a change that must not change any.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.bits.parts import PARTS
from tests.bits.stored import different, foreign, stored, write


def main() -> int:
    """Compare, or write; return 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"default: all, which are {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="store the digests in place of comparing them")
    given = parser.parse_args()
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    differs = False
    for part in given.parts or PARTS:
        begin = time.process_time()
        if given.write:
            result = _written(part)
        elif others := foreign().intersection(PARTS[part].needs):
            result = f"not compared: {', '.join(sorted(others))} are rounded in another way here"
        else:
            changed = different(part, range(PARTS[part].batches))
            differs = differs or bool(changed)
            result = f"{len(changed)} differ: {', '.join(map(str, changed))}" if changed else "equal"
        sys.stdout.write(f"{part}: {PARTS[part].batches} batches, {result} ({time.process_time() - begin:.1f} s)\n")
        sys.stdout.flush()
    return int(differs)


def _written(part: str) -> str:
    digests, before = [PARTS[part].made(number) for number in range(PARTS[part].batches)], stored().get(part, [])
    write({part: digests})
    changed = sum(before[number : number + 1] != [digest] for number, digest in enumerate(digests))
    return f"stored, {changed} of them changed"


if __name__ == "__main__":
    sys.exit(main())
