"""Errors of the client: an argument is wrong, or a message is no alert.

Only constructors and readers of messages raise these errors, so the errors never reach an agent's loop.
"""

from __future__ import annotations

__all__ = ["AlertError", "ClientError"]


class ClientError(ValueError):
    """An argument is wrong. The message says which argument, what is wrong, and what to write instead."""


class AlertError(ValueError):
    """A message on an alert's topic is not an alert of a version that this package reads."""
