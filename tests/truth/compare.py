"""Every public field of a verdict beside what the oracle says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import monitor
from tests.oracle.evaluate import Answer, Part

TOLERANCE = 1e-9


def differences(answer: Answer, verdict: monitor.Verdict) -> list[str]:
    """Return one line for each field in which the two differ."""
    return [
        f"{name}: oracle {_plain(expected)}, engine {_plain(found)}"
        for name, expected, found in _fields(answer, verdict)
        if not _same(expected, found)
    ]


def _fields(answer: Answer, verdict: monitor.Verdict) -> Iterator[tuple[str, Any, Any]]:
    for name in ("value", "holds", "outcome", "effect", "effect_bounds", "latest_useful"):
        yield name, getattr(answer, name), getattr(verdict, name)
    quantities = list({quantity.text: quantity for quantity in verdict.quantities}.values())
    # That two comparisons of a formula are the same one may be used or not.
    overcautious = verdict.robust is False and answer.cautious is False
    yield "robust", answer.cautious if overcautious else answer.robust, verdict.robust
    yield "method", "exact", verdict.method
    yield "start_dropped", False, verdict.start_dropped
    yield "profile", answer.profile, dict(verdict.profile)
    yield "clipped", any(part.clipped for part in answer.parts), verdict.clipped
    if len({part.offset for part in answer.parts}) == 1:
        yield "offset", answer.parts[0].offset, verdict.offset
    if len(verdict.quantities) == 1 or answer.outcome:  # one that occurs twice has its bounds below
        yield "bounds", answer.bounds, verdict.bounds
    if len(answer.parts) != len(quantities):
        yield "quantities", len(answer.parts), len(quantities)
        return
    for number, (part, quantity) in enumerate(zip(answer.parts, quantities, strict=True)):
        for name in Part.__dataclass_fields__:
            yield f"quantities[{number}].{name}", getattr(part, name), getattr(quantity, name)


def _same(expected: Any, found: Any) -> bool:  # noqa: ANN401 (whatever a field holds)
    if expected is None or found is None or isinstance(expected, bool | str):
        return expected is found or expected == found
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(_same(each, found[key]) for key, each in expected.items())
    if isinstance(expected, tuple):
        return len(expected) == len(found) and all(map(_same, expected, found))
    return abs(float(expected) - float(found)) <= TOLERANCE


def _plain(value: Any) -> Any:  # noqa: ANN401 (likewise)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return value if value is None or isinstance(value, bool | str | int) else float(value)
