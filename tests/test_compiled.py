"""The kernels that the tests run are the machine code of their sources."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hatch_build import COMPILED, ROOT

PURE = os.environ.get("MONITOR_UNCOMPILED") == "1"
ASKED = (
    "import numpy as np; from monitor.causal import counterfactual_row as row, row_bounds;"
    "p = np.arange(3), np.array([0.2, 0.3, 0.5]); q = np.arange(3), np.array([0.5, 0.4, 0.1]);"
    "print(row(p, 1, q).tobytes().hex(), *(each.tobytes().hex() for each in row_bounds(p, 1, q, 'stable')))"
)


@pytest.mark.skipif(PURE, reason="the sources run")
@pytest.mark.parametrize("source", COMPILED)
def test_a_kernel_is_the_machine_code_of_its_source(source: str) -> None:
    made = Path(str(import_module(source.removesuffix(".py").replace("/", ".")).__file__))
    assert made.name == Path(source).stem + sysconfig.get_config_var("EXT_SUFFIX"), (
        "not compiled: run `make test`, or python hatch_build.py"
    )
    written = max(file.stat().st_mtime for file in (ROOT / source, (ROOT / source).with_suffix(".pxd")))
    assert made.stat().st_mtime >= written, "older than its source: run `make test`, or python hatch_build.py"


def test_uncompiled_the_sources_give_the_same_bits_and_say_that_they_are_slow() -> None:
    def ask(**settings: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "MONITOR_UNCOMPILED"} | settings
        return subprocess.run(
            [sys.executable, "-c", ASKED], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )

    compiled, pure = ask(), ask(MONITOR_UNCOMPILED="1")
    assert pure.stdout == compiled.stdout
    assert compiled.stderr == ""
    assert pure.stderr.count("not compiled") == 1
    assert "apt-get install gcc python3-dev" in pure.stderr
    assert np.isfinite(np.frombuffer(bytes.fromhex(pure.stdout.split()[0]))).all()
