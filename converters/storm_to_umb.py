"""Build a model in the PRISM language or JANI with Storm, and write it as UMB: `storm_to_umb.py IN OUT [N=10 [BYTES]]`.

A program of its own: `cfmon model convert` runs it in another process, with a Python that has stormpy, and reads the
file. stormpy is GPL, so the package `monitor`, which does not import it, neither links nor ships it.

The third argument gives the constants, the fourth the bytes of memory that Storm may take. The program ends with the
process that started it. Exit code 3: stormpy is missing or too old. 4: Storm refuses the model; the reason is on
stderr. 5: it needs more memory.
"""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
from pathlib import Path
from typing import Any

MISSING, REFUSED, TOO_LARGE = 3, 4, 5


def main(source: str, target: str, constants: str = "", memory: str = "") -> int:
    """Convert, and return the exit code."""
    end_with_parent()
    try:
        import stormpy  # noqa: PLC0415 - a missing one is reported
        from stormpy import io  # noqa: PLC0415 - likewise
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    if not hasattr(io, "export_to_umb"):
        print("it is older than 2.0", file=sys.stderr)
        return MISSING
    if memory:
        limit_memory(int(memory))
    try:
        built = build(stormpy, source, constants)
        io.export_to_umb(built, target)
    except MemoryError:
        return TOO_LARGE
    except Exception as error:  # noqa: BLE001 - Storm raises any, all about the model
        print(f"\n{error}", file=sys.stderr)
        return REFUSED
    return 0


def end_with_parent() -> None:
    """Have Linux kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def limit_memory(more: int) -> None:
    """Let this process map so many bytes more than now, and write files of so many at most."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for kind, most in ((resource.RLIMIT_AS, mapped + more), (resource.RLIMIT_FSIZE, more)):
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(kind, (most, most))


def build(stormpy: Any, source: str, constants: str) -> Any:  # noqa: ANN401 - stormpy ships no types
    """Return Storm's model, with all labels, rewards, names of actions and values of variables."""
    if Path(source).suffix == ".jani":
        description = stormpy.parse_jani_model(source)
        description = description[0] if isinstance(description, tuple) else description
    else:
        description = stormpy.parse_prism_program(source)
    description, _ = stormpy.instantiate_constants(description, constants)
    options = stormpy.BuilderOptions(build_full=True)
    options.set_build_choice_labels(True)
    options.set_build_state_valuations(True)
    options.set_build_all_labels(True)
    options.set_build_all_reward_models(True)
    return stormpy.build_model(description, options=options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
