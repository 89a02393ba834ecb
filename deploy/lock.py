"""Generate the lock files: `make lock`, or `make lock ARGS=--upgrade` for the newest versions.

`requirements.lock` is what the image and `install.sh` install: every package of the monitor's own run, the extra `sign`
included, with the hashes of all its files, for every python that pyproject.toml allows. `build.lock` is what makes the
wheel and the bill of materials. Without `--upgrade`, versions that still satisfy everything stay as they are.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
ROOT = DEPLOY.parent
BILL_OF_MATERIALS = "cyclonedx-bom>=7"


def main() -> int:
    """Run uv for both files; return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floor = project["project"]["requires-python"].removeprefix(">=")
    runtime = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["sign"]]
    build = [*project["build-system"]["requires"], BILL_OF_MATERIALS]
    return compile_lock("requirements.lock", runtime, floor) or compile_lock("build.lock", build, floor)


def compile_lock(name: str, requirements: list[str], python: str) -> int:
    """Resolve `requirements` for every platform and Python from `python` on, into the file `name` beside this one."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--no-annotate"]
    command += ["--universal", "--python-version", python, "--generate-hashes", "--only-binary", ":all:"]
    command += ["--custom-compile-command", "make lock", "--constraints", str(DEPLOY / "constraints.txt")]
    command += ["--output-file", str(DEPLOY / name), *sys.argv[1:], "-"]
    text = "\n".join(requirements)
    return subprocess.run(command, input=text, text=True, check=False, cwd=ROOT).returncode  # noqa: S603 - ours


if __name__ == "__main__":
    sys.exit(main())
