"""Tables whose columns get roles, and the roles in short."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.authoring.learning.column_facts import Head, head_of
from monitor.authoring.learning.column_roles import Proposal
from monitor.authoring.learning.row_files import open_rows

__all__ = ["head", "roles", "table"]


def head(path: Path, rows: Sequence[dict[str, Any]]) -> Head:
    """Return the first rows of a CSV file with these rows."""
    with path.open("w", newline="") as file:
        log = csv.DictWriter(file, rows[0])
        log.writeheader()
        log.writerows(rows)
    return head_of([open_rows(path)])


def roles(proposal: Proposal) -> dict[str, str]:
    """Return each column's roles with commas, `-` for none, and `?` if others are plausible."""
    return {each.name: (",".join(each.roles) or "-") + ("" if each.sure else "?") for each in proposal.columns}


def table(**columns: Any) -> Head:  # noqa: ANN401 - values of any kind
    """Return the columns as the first rows of one file."""
    values = {name: np.asarray(each) for name, each in columns.items()}
    return Head(values, np.zeros(len(next(iter(values.values()))), np.int64))
