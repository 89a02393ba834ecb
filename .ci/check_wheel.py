"""Check a monitor that is installed from a wheel, with nothing else of this repository: `python -I check_wheel.py`.

Every module with C types is machine code, and a verdict has the value of the README.
"""

from __future__ import annotations

import sys
import sysconfig
import warnings
from importlib import import_module
from pathlib import Path

import monitor

QUESTION = 'regret(fallback@2, P>=0.8 [ G<=8 !"hole" ])'
EXPECTED = "regret +0.2853"


def main() -> int:
    warnings.simplefilter("error")  # such as that the monitor is not compiled
    package = Path(monitor.__file__).parent
    kernels = [file.relative_to(package.parent).with_suffix("") for file in package.rglob("*.pxd")]
    for kernel in kernels:
        made = Path(str(import_module(".".join(kernel.parts)).__file__))
        assert made.name == kernel.name + sysconfig.get_config_var("EXT_SUFFIX"), f"{made} is not machine code"
    model = monitor.load_model(package / "_data" / "policies" / "frozen-lake" / "model.npz")
    folder = package / "_data" / "policies" / "frozen-lake"
    policies = {"nominal": folder / "rash.yaml", "fallback": folder / "good.yaml"}
    verdict = monitor.check(QUESTION, model=model, path=[(0, 2), (1, 2), (2, 2)], policies=policies)
    assert isinstance(verdict, monitor.Verdict)
    assert kernels
    assert f"{verdict.outcome} {verdict.effect:+.4f}" == EXPECTED
    print(f"{len(kernels)} modules are machine code; {EXPECTED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
