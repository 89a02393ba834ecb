"""Calls of a function written down, in order, while it goes on working."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["note_calls"]


def note_calls(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, calls: list[Any], note: Callable[..., object]
) -> None:
    """Append `note(*arguments)` to `calls` whenever `owner.name` is called."""
    original = getattr(owner, name)

    def noted(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever it takes and gives
        calls.append(note(*args, **more))
        return original(*args, **more)

    monkeypatch.setattr(owner, name, noted)
