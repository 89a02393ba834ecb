"""Some of the mutants, always the same: each is noticed by a test, or explained in `survivors.toml`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutation.operators import mutants_of
from tests.mutation.report import explanations

ROOT = Path(__file__).parents[2]
SHARE = 60


def test_no_mutant_of_a_share_survives_unexplained() -> None:
    command = [sys.executable, "-m", "tests.mutation", "--share", str(SHARE), "--jobs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{SHARE} mutants" in done.stdout


def test_every_explanation_is_of_a_mutant_that_there_is() -> None:
    known = explanations()
    files = {name.split(" ")[0] for name in known}
    there = {f"{mutant.file} {mutant.key}" for file in files for mutant in mutants_of(ROOT / file, ROOT)}
    assert sorted(known.keys() - there) == []
    assert all(why.strip() for why in known.values())


def test_a_changed_comparison_is_one_of_the_mutants(tmp_path: Path) -> None:
    source = tmp_path / "small.py"
    source.write_text('"""Doc."""\n\n\ndef sign(x: int) -> int:\n    return 1 if x < 0 else x + 2\n')
    found = {mutant.key for mutant in mutants_of(source, tmp_path)}
    assert {
        "sign: x < 0 -> (x <= 0)",
        "sign: x < 0 -> (x >= 0)",
        "sign: x + 2 -> (x - 2)",
        "sign: 2 -> 3",
        "sign: 0 -> (-1)",
    } <= found
    assert not any("Doc" in key for key in found)
    for mutant in mutants_of(source, tmp_path):
        compile(mutant.apply(source.read_bytes()), mutant.file, "exec")
