"""The command line, run in this process."""

from __future__ import annotations

from tests.cli.conftest import cfmon

__all__ = ["cfmon"]
