"""Generate the lock files: `make lock`, or `make lock ARGS=--upgrade` for the newest versions.

The image and `install.sh` install `requirements.lock`: every package that the monitor needs at run time, the extra
`sign` included, with the hashes of all its files, for every Python that pyproject.toml allows. `build.lock` has the
packages that make the wheel and the bill of materials. With the argument `flink`, the script writes
`flink/requirements.lock` instead: the job's environment, with the older packages that Flink pins, for x86-64 Linux and
the oldest Python, with its own constraints. Without `--upgrade`, versions that satisfy everything are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
ROOT = DEPLOY.parent
BILL_OF_MATERIALS = "cyclonedx-bom>=7"
FLINK = "apache-flink==2.3.0"
SOURCES_ONLY = ("apache-flink-libraries", "crcmod", "dill", "docopt", "hdfs")
"""Packages below Flink that have no wheel on PyPI."""


def main() -> int:
    """Run uv for both files, or for the job's file if the first argument is `flink`; return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floor = project["project"]["requires-python"].removeprefix(">=")
    runtime = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["sign"]]
    build = [*project["build-system"]["requires"], BILL_OF_MATERIALS]
    everywhere = ["--universal", "--constraints", str(DEPLOY / "constraints.txt")]
    here = ["--python-platform", "x86_64-manylinux_2_28", "--constraints", str(DEPLOY / "flink" / "constraints.txt")]
    sources = [option for name in SOURCES_ONLY for option in ("--no-binary", name)]
    first, *rest = [*sys.argv[1:], ""]
    if first == "flink":
        options = [*here, *sources, "--python-version", floor, *filter(None, rest)]
        return compile_lock("flink/requirements.lock", [*runtime, FLINK], options)
    options = [*everywhere, "--python-version", floor, *sys.argv[1:]]
    return compile_lock("requirements.lock", runtime, options) or compile_lock("build.lock", build, options)


def compile_lock(name: str, requirements: list[str], options: list[str]) -> int:
    """Resolve `requirements` under these options of uv, into the file `name` beside this one."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--no-annotate"]
    command += ["--generate-hashes", "--only-binary", ":all:", *options]
    command += ["--custom-compile-command", "make lock", "--output-file", str(DEPLOY / name), "-"]
    text = "\n".join(requirements)
    return subprocess.run(command, input=text, text=True, check=False, cwd=ROOT).returncode  # noqa: S603 - ours


if __name__ == "__main__":
    sys.exit(main())
