"""Roles of columns that are proposed for logs as different systems write them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from monitor.authoring.learning.column_facts import Head, head_of
from monitor.authoring.learning.column_roles import Proposal, proposed
from monitor.authoring.learning.row_files import open_rows
from tests.authoring.learning.real_looking_logs import EXPECTED, log_of


def head(path: Path, rows: Sequence[dict[str, Any]]) -> Head:
    with path.open("w", newline="") as file:
        log = csv.DictWriter(file, rows[0])
        log.writeheader()
        log.writerows(rows)
    return head_of([open_rows(path)])


def roles(proposal: Proposal) -> dict[str, str]:
    return {each.name: (",".join(each.roles) or "-") + ("" if each.sure else "?") for each in proposal.columns}


@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_the_roles_are_those_that_a_careful_person_gives(make: Callable[[Any], Iterator[Any]], tmp_path: Path) -> None:
    log = log_of(make)
    found = proposed(head(tmp_path / "log.csv", log.rows), {})
    assert roles(found) == log.roles
    assert all(each.why for each in found.columns)
    assert all(each.others for each in found.unsure)
