"""The list of explained survivors names mutants that there are, each with a reason."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.mutation.operators import mutants_of
from tests.mutation.report import EXPLAINED

ROOT = Path(__file__).parents[2]


def test_every_explained_survivor_is_a_mutant_of_the_source_as_it_is() -> None:
    groups = tomllib.loads(EXPLAINED.read_text()).get("group", [])
    keys = {file: [each.key for each in mutants_of(ROOT / file, ROOT)] for file in {g["file"] for g in groups}}
    for group in groups:
        here = keys[group["file"]]
        gone = [name for name in group.get("mutants", ()) if name not in here]
        gone += [start for start in group.get("starting", ()) if not any(key.startswith(start) for key in here)]
        assert not gone, group["file"]
        assert group["why"].endswith(".")
