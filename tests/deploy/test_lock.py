"""The lock files: complete, hashed, above every floor, from nowhere in particular; and the table of floors is true."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.tiers import slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
SIGN = [Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["sign"]]
PYTHONS = ("3.11", "3.12", "3.13")
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


@dataclass(frozen=True)
class Pin:
    """One package of a lock file, for the pythons where its marker holds."""

    name: str
    version: Version
    marker: Marker | None
    hashes: tuple[str, ...]

    def holds(self, python: str) -> bool:
        environment = {**LINUX, "python_version": python, "python_full_version": f"{python}.9"}
        return self.marker is None or self.marker.evaluate(environment)


def pins(name: str) -> list[Pin]:
    found = []
    for entry in re.sub(r"\\\n\s*", "", (DEPLOY / name).read_text()).splitlines():
        if entry.startswith("#"):
            continue
        specifier, *hashes = entry.split("--hash=")
        requirement = Requirement(specifier.strip())
        (version,) = requirement.specifier
        assert version.operator == "=="
        pinned = Version(version.version)
        found.append(
            Pin(canonicalize_name(requirement.name), pinned, requirement.marker, tuple(map(str.strip, hashes)))
        )
    return found


def pinned(name: str, python: str) -> dict[str, Version]:
    return {pin.name: pin.version for pin in pins(name) if pin.holds(python)}


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock", "flink/requirements.lock"])
def test_every_pin_has_hashes_and_none_says_where_it_came_from(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert pins(name)
    for pin in pins(name):
        assert pin.hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in pin.hashes)
    assert not re.search(r"://|--(extra-)?index|--find-links| @ ", text)
    assert "make lock" in text.splitlines()[1]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("requirements.lock", RUNTIME),
        ("requirements.lock", SIGN),
        ("build.lock", [Requirement(line) for line in PROJECT["build-system"]["requires"]]),
    ],
)
def test_each_dependency_is_pinned_once_and_at_or_above_its_floor(
    name: str, requirements: list[Requirement], python: str
) -> None:
    assert len({pin.name for pin in pins(name) if pin.holds(python)}) == sum(pin.holds(python) for pin in pins(name))
    versions = pinned(name, python)
    for requirement in requirements:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_the_job_on_flink_has_what_the_monitor_needs_and_the_flink_that_was_measured() -> None:
    """For one python and one platform; Flink needs two packages older than their floors."""
    versions = pinned("flink/requirements.lock", "3.11")
    assert versions["apache-flink"] == versions["apache-flink-libraries"] == Version("2.3.0")
    for requirement in [*RUNTIME, *SIGN]:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])
    for name, (floor, _) in table().items():
        assert name in {"protobuf", "pyarrow"} or name not in versions or versions[name] >= floor, name


def test_what_pinned_packages_need_is_pinned_too() -> None:
    """As far as they are installed here, in the version that is pinned."""
    versions = pinned("requirements.lock", f"3.{sys.version_info.minor}")
    looked_into = 0
    for name, version in versions.items():
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if Version(found.version) != version:
            continue
        looked_into += 1
        for line in found.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), line
    assert looked_into > 10 or sys.version_info >= (3, 14)


def test_every_package_the_monitor_imports_is_a_dependency_it_names() -> None:
    """Imports inside functions too; those for an extra's commands name the extra in pyproject.toml."""
    imported = set()
    for file in (ROOT / "monitor").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    providers = importlib.metadata.packages_distributions()
    outside = {name for name in imported if name in providers and name != "monitor"}
    extras = [Requirement(line) for group in PROJECT["project"]["optional-dependencies"].values() for line in group]
    named = {canonicalize_name(requirement.name) for requirement in [*RUNTIME, *extras]}
    assert {"numpy", "msgpack", "starlette"} <= outside
    for name in outside:
        assert any(canonicalize_name(provider) in named for provider in providers[name]), name


@slow
def test_making_it_anew_changes_nothing(tmp_path: Path) -> None:
    """The inputs have not moved on without it. Asks the package index; where there is none, that shows nothing."""
    copies = tmp_path / "deploy"
    copies.mkdir()
    for name in ("lock.py", "constraints.txt", "requirements.lock", "build.lock"):
        (copies / name).write_bytes((DEPLOY / name).read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    done = subprocess.run([sys.executable, copies / "lock.py"], capture_output=True, text=True, check=False)
    if re.search(r"[Ff]ailed to fetch|dns error|[Cc]onnection|timed out", done.stderr):
        pytest.skip(f"no package index can be asked: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    for name in ("requirements.lock", "build.lock"):
        assert {(pin.name, pin.version) for pin in pins_of(copies / name)} == {
            (pin.name, pin.version) for pin in pins(name)
        }


def pins_of(path: Path) -> list[Pin]:
    return pins(str(path))


# ---- the table of floors ----


def floors() -> dict[str, Version]:
    """The floors that pyproject.toml and the constraints state, extras included."""
    extras = [line for group in PROJECT["project"]["optional-dependencies"].values() for line in group]
    constraints = [line for line in (DEPLOY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found: dict[str, Version] = {}
    for line in [*extras, *constraints, *PROJECT["project"]["dependencies"]]:
        requirement = Requirement(line)
        lowest = [one.version for one in requirement.specifier if one.operator == ">="]
        if lowest:
            found[canonicalize_name(requirement.name)] = Version(lowest[0])
    return found


def table() -> dict[str, tuple[Version, str]]:
    rows = re.findall(
        r"(?m)^\| ([a-z0-9-]+)(?: \([^)]*\))? \| ([0-9.]+) \| ([^|]+) \|",
        (ROOT / "docs" / "dependencies.md").read_text(),
    )
    return {name: (Version(floor), answers.strip()) for name, floor, answers in rows}


def test_the_table_states_the_floors_that_are_in_force() -> None:
    stated = floors()
    runtime = {canonicalize_name(requirement.name) for requirement in RUNTIME}
    constrained = {
        line.partition(">=")[0] for line in (DEPLOY / "constraints.txt").read_text().splitlines() if ">=" in line
    }
    assert runtime | constrained <= set(table())
    for name, (floor, answers) in table().items():
        assert stated[name] == floor, name
        assert re.search(r"CVE-\d{4}-\d+|GHSA(-[23456789cfghjmpqrvwx]{4}){3}|^none known to us", answers), name


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_is_at_or_above_every_floor_of_the_table(python: str) -> None:
    versions = pinned("requirements.lock", python)
    for name, (floor, _) in table().items():
        if name in versions:
            assert versions[name] >= floor


def test_this_environment_is_at_or_above_every_floor_of_the_table() -> None:
    for name, (floor, _) in table().items():
        assert Version(importlib.metadata.version(name)) >= floor, name
