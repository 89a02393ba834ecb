"""`install.sh`, which the image is built with, in an empty root; then the monitor on a file system it cannot write to.

One installation serves all of the slow tests. The fast test borrows the packages that the tests run with.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor import __version__
from tests.deploy.bare_root import PYTHON, BareRoot, bare_root
from tests.deploy.test_bill_of_materials import fault_of
from tests.deploy.test_lock import pinned
from tests.servers import PATIENCE, Sidecar, end, free_port, mosquitto, wait_until
from tests.tiers import slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONFIG = "/etc/cfmon/config/icu-sepsis.yaml"
LONG = 10 * PATIENCE
THIS_PYTHON = f"3.{sys.version_info.minor}"
PRODUCT = f"counterfactual_monitor-{__version__}"


def build_wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch_wheels(folder: Path) -> None:
    """Everything the lock file names, for this python; skips the tests where no package index can be asked."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
    command += ["--require-hashes", "--only-binary", ":all:", "--dest", str(folder)]
    lock = str(DEPLOY / "requirements.lock")
    done = subprocess.run([*command, "--requirement", lock], capture_output=True, text=True, check=False)
    if re.search(r"NewConnectionError|Read timed out|Temporary failure in name", done.stderr):
        pytest.skip("no package index can be asked")
    assert done.returncode == 0, done.stderr


def install(root: BareRoot, *options: str) -> subprocess.CompletedProcess[str]:
    (wheel,) = (root.path / "in").glob("*.whl")
    options = ("--python", str(PYTHON / "bin" / "python3"), "--wheels", "/in/wheels", *options)
    return root.run("sh", "/in/install.sh", *options, f"/in/{wheel.name}", "/in/requirements.lock")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    folder = tmp_path_factory.mktemp("root")
    root = bare_root(folder)
    try:
        for name in ("install.sh", "requirements.lock"):
            shutil.copy(DEPLOY / name, folder / "in")
        build_wheel(folder / "in")
        fetch_wheels(folder / "in" / "wheels")
        done = install(root)
        assert done.returncode == 0, done.stdout + done.stderr
        for name in ("config", "policies"):  # as compose.yaml mounts them
            shutil.copytree(ROOT / name, folder / "etc" / "cfmon" / name)
        yield root
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # half a gigabyte


def settings(root: BareRoot) -> dict[str, str]:
    """What `install.sh` says the environment has to be."""
    lines = (root.path / "opt" / "cfmon" / "cfmon.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_every_shell_can_read_it(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing")
    subprocess.run([shell, "-n", str(DEPLOY / "install.sh")], check=True)


def test_shellcheck_is_content() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), DEPLOY / "install.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage: "),
        (["build-py3-none-any.whl", str(DEPLOY / "build.lock")], "build-py3-none-any.whl: is not compiled"),
        (["--frobnicate"], "there is no option --frobnicate"),
        (["--prefix"], "--prefix needs a value"),
        (["nothing.whl", "nothing.lock"], "nothing.whl: there is no such file"),
        (["--prefix", "opt", str(DEPLOY / "lock.py"), str(DEPLOY / "build.lock")], "opt: must be an absolute path"),
        (["--python", "false", str(DEPLOY / "lock.py"), str(DEPLOY / "build.lock")], "false: python 3.11 or newer"),
    ],
)
def test_a_wrong_call_is_reported_and_changes_nothing(arguments: list[str], said: str, tmp_path: Path) -> None:
    wheel = tmp_path / "build-py3-none-any.whl"
    wheel.touch()
    done = subprocess.run(
        ["sh", DEPLOY / "install.sh", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"install: {said}")
    assert list(tmp_path.iterdir()) == [wheel]


@slow
def test_no_thread_is_started_for_each_core() -> None:
    """A host may have more cores than a unit or a container may have threads."""
    (said,) = re.findall(r"(?m)^OPENBLAS_NUM_THREADS=\d+$", (DEPLOY / "install.sh").read_text())
    program = "import os, monitor.sidecar.service, numpy, scipy.linalg; print(len(os.listdir('/proc/self/task')))"
    environment = {**os.environ, **dict([said.split("=")])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def small_package(root: BareRoot) -> str:
    """Put a package into the folder of wheels; return the content of a lock file that names it."""
    wheel = root.path / "in" / "wheels" / "small-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", "")
        for name, content in (
            ("METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", "small.py,,\nsmall-1.0.dist-info/METADATA,,\nsmall-1.0.dist-info/WHEEL,,\n"),
        ):
            archive.writestr(f"small-1.0.dist-info/{name}", content)
    return f"small==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def test_what_is_locked_is_installed_and_nothing_else_and_it_is_the_users_who_is_made(tmp_path: Path) -> None:
    """With the packages that the tests run with beside it."""
    root = bare_root(tmp_path, site.getsitepackages())
    prefix = root.path / "opt" / "cfmon"
    packages = prefix / "lib" / f"python{THIS_PYTHON}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    shutil.copy(DEPLOY / "install.sh", root.path / "in")
    build_wheel(root.path / "in")
    (root.path / "in" / "requirements.lock").write_text(small_package(root))
    done = install(root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in packages.glob("*.dist-info")} == {"small-1.0.dist-info", f"{PRODUCT}.dist-info"}
    shipped = (prefix / "share").readlink().relative_to("/")
    assert (root.path / shipped / "config" / "icu-sepsis.yaml").is_file()
    state = (root.path / "var" / "lib" / "cfmon").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (10001, 10001, 0o750)
    version = root.run("/opt/cfmon/bin/cfmon", "--version", read_only=True, more=settings(root))
    assert version.stdout == f"cfmon {__version__}\n", version.stderr


@slow
def test_a_file_that_is_not_the_locked_one_is_refused(installed: BareRoot) -> None:
    wheel = next((installed.path / "in" / "wheels").glob("mdurl-*.whl"))
    honest = wheel.read_bytes()
    wheel.write_bytes(honest + b"\n")
    try:
        done = install(installed, "--prefix", "/opt/other")
    finally:
        wheel.write_bytes(honest)
        shutil.rmtree(installed.path / "opt" / "other")
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


@slow
def test_owned_by_root_and_installed_as_locked(installed: BareRoot) -> None:
    prefix = installed.path / "opt" / "cfmon"
    assert all(
        path.lstat().st_uid == 0 and path.lstat().st_mode & 0o022 == 0
        for path in prefix.rglob("*")
        if not path.is_symlink()
    )
    state = (installed.path / "var" / "lib" / "cfmon").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (10001, 10001, 0o750)
    listing = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    done = installed.run("/opt/cfmon/bin/python", "-I", "-c", listing)
    found = dict(line.lower().replace("_", "-").split("==") for line in done.stdout.splitlines())
    del found["counterfactual-monitor"]
    assert found == {
        name: str(version) for name, version in pinned("requirements.lock", f"3.{sys.version_info.minor}").items()
    }


@slow
def test_again_keeps_the_state_and_mends_the_rest(installed: BareRoot) -> None:
    note = installed.path / "var" / "lib" / "cfmon" / "note"
    note.write_text("kept")
    (installed.path / "opt" / "cfmon" / "bin" / "cfmon").unlink()
    passwd = (installed.path / "etc" / "passwd").read_text()
    done = install(installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert note.read_text() == "kept"
    assert (installed.path / "etc" / "passwd").read_text() == passwd
    assert installed.run("/opt/cfmon/bin/cfmon", "--version").stdout.startswith("cfmon ")
    note.unlink()


@slow
def test_what_is_installed_is_machine_code(installed: BareRoot) -> None:
    shutil.copy(ROOT / ".ci" / "check_wheel.py", installed.path / "in")
    python = ["/opt/cfmon/bin/python", "-I", "/in/check_wheel.py"]
    done = installed.run(*python, read_only=True, more=settings(installed))
    assert done.returncode == 0, done.stdout + done.stderr


@slow
def test_bill_of_materials_of_what_is_installed(installed: BareRoot) -> None:
    """By the command of the Containerfile."""
    text = (DEPLOY / "Containerfile").read_text()
    command = re.search(r"/build/bin/(cyclonedx-py environment .*\\\n.*) --output-file", text)
    assert command
    program, *options = command[1].replace("\\\n", " ").split()
    options[options.index("--pyproject") + 1] = str(ROOT / "pyproject.toml")
    python = installed.path / "opt" / "cfmon" / "bin" / "python"
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *options, python], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert fault_of(done.stdout) is None
    bill = json.loads(done.stdout)
    versions = {component["name"].lower().replace("_", "-"): component["version"] for component in bill["components"]}
    for name, version in pinned("requirements.lock", THIS_PYTHON).items():
        assert versions[name] == str(version)
    assert sum("licenses" in component for component in bill["components"]) > len(versions) / 2


# ---- the monitor, unprivileged, where nothing but its state can be written ----


@contextmanager
def running(root: BareRoot, broker: str, log: Path) -> Iterator[Sidecar]:
    more = {
        **settings(root),
        "CFMON_MQTT__URL": broker,
        "CFMON_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
        "CFMON_STORE__PATH": "/var/lib/cfmon/cfmon.sqlite",
    }
    process = root.start("/opt/cfmon/bin/cfmon", "run", CONFIG, more=more, log=log)
    sidecar = Sidecar(process, log)
    try:
        wait_until(lambda: process.poll() is not None or "status page at" in sidecar.log, "it serves", patience=LONG)
        assert process.poll() is None, sidecar.log
        yield sidecar
    finally:
        end(process)


def answered(sidecar: Sidecar) -> bool:
    series = re.findall(r'(?m)^cfmon_verdicts_total\{.*method="exact".*\} (\S+)$', sidecar.get("/metrics").decode())
    return sum(map(float, series)) > 0


@slow
def test_it_runs_there_unprivileged_and_ends_when_told(installed: BareRoot, tmp_path: Path) -> None:
    data = Path("/etc/cfmon/policies/icu-sepsis")
    with mosquitto(tmp_path / "broker") as broker, running(installed, broker.url, tmp_path / "log") as sidecar:
        with urllib.request.urlopen(f"{sidecar.url}/healthz", timeout=PATIENCE) as health:
            assert health.status == 200
        status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
        assert re.search(r"(?m)^Uid:\t10001\t10001\t10001\t10001$", status)
        assert re.search(r"(?m)^CapEff:\t0+$", status)
        wait_until(sidecar.ready, "it is ready")
        agent = ["/opt/cfmon/bin/python", "-m", "monitor.demo.agent", "--url", broker.url, "--topic", "agents/w1/steps"]
        agent += [
            "--steps",
            "20",
            "--interval",
            "0",
            "--model",
            f"{data}/model.npz",
            "--policy",
            f"{data}/deployed.yaml",
        ]
        done = installed.run(*agent, read_only=True, more=settings(installed))
        assert done.returncode == 0, done.stderr
        wait_until(lambda: answered(sidecar), "steps are answered")
        assert end(sidecar.process, with_signal=signal.SIGTERM) == 0, sidecar.log
    assert (installed.path / "var" / "lib" / "cfmon").stat().st_uid == 10001
    assert list((installed.path / "var" / "lib" / "cfmon").iterdir())
