"""Errors. Nothing here is raised into an agent's loop: only by constructors, and by readers of messages."""

from __future__ import annotations

__all__ = ["AlertError", "ClientError"]


class ClientError(ValueError):
    """An argument is wrong: the message says which one, what is wrong, and what to write instead."""


class AlertError(ValueError):
    """A message on an alert's topic is not an alert of a version that this package reads."""
