"""What is computed, and what is followed from pair to pair: no answer shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.exact.path_values import PathValues, WorldValues

__all__ = ["followed_worlds", "note_calls"]


def followed_worlds(values: PathValues) -> list[WorldValues]:
    """Return the values that are followed along a path, one of each measure in each world."""
    return list(values.worlds)


def note_calls(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, calls: list[Any], note: Callable[..., object]
) -> None:
    """Append `note(*arguments)` to `calls` whenever `owner.name` is called."""
    original = getattr(owner, name)

    def noted(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever it takes and gives
        calls.append(note(*args, **more))
        return original(*args, **more)

    monkeypatch.setattr(owner, name, noted)
