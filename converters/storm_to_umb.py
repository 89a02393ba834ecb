"""Build a model in the PRISM language or JANI with Storm, and write it as UMB: `storm_to_umb.py IN OUT [N=10,K=2]`.

A program of its own: `cfmon model convert` runs it in another process, with a Python that has stormpy, and reads the
file. stormpy is GPL, so the package `monitor`, which does not import it, neither links nor ships it.

Exit code 3: stormpy is missing or too old. 4: Storm refuses the model; the reason is on stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

MISSING, REFUSED = 3, 4


def main(source: str, target: str, constants: str = "") -> int:
    """Convert, and return the exit code."""
    try:
        import stormpy  # noqa: PLC0415 - a missing one is reported
        from stormpy import io  # noqa: PLC0415 - likewise
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    if not hasattr(io, "export_to_umb"):
        print("it is older than 2.0", file=sys.stderr)
        return MISSING
    try:
        built = build(stormpy, source, constants)
        io.export_to_umb(built, target)
    except Exception as error:  # noqa: BLE001 - Storm raises any, all about the model
        print(f"\n{error}", file=sys.stderr)
        return REFUSED
    return 0


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
    sys.exit(main(*sys.argv[1:4]))
