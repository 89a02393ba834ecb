"""The image's recipe: what it copies exists and suffices for the wheel, what it states agrees with the package.

Nothing here can run a container engine; the steps that need none are done by hand.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
VERSION: str = runpy.run_path(str(ROOT / "monitor" / "_version.py"))["__version__"]
INSTRUCTIONS = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", CONTAINERFILE.read_text())).splitlines()


def arguments(instruction: str) -> list[str]:
    """What follows each `instruction` of the file, joined over continued lines."""
    prefix = f"{instruction} "
    return [line.removeprefix(prefix).strip() for line in INSTRUCTIONS if line.startswith(prefix)]


def copied() -> list[str]:
    sources = [line.split()[:-1] for line in arguments("COPY") if not line.startswith("--from=")]
    return [source for line in sources for source in line]


def test_the_python_is_one_the_package_supports_and_the_same_throughout() -> None:
    images = {line.split()[0] for line in arguments("FROM")}
    (image,) = images
    version = re.fullmatch(r"docker\.io/library/python:3\.(\d+)-slim-bookworm", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floor = re.fullmatch(r">=3\.(\d+)", project["requires-python"])
    assert version
    assert floor
    assert int(version[1]) >= int(floor[1])


def test_the_label_states_this_version() -> None:
    (labels,) = arguments("LABEL")
    assert f'org.opencontainers.image.version="{VERSION}"' in labels


def test_runs_unprivileged_and_asks_for_its_own_health() -> None:
    (user,) = arguments("USER")
    assert user.isdigit()
    assert int(user) > 0
    assert f" --uid {user} " in next(line for line in arguments("RUN") if "useradd" in line)
    last = [line.split()[0] for line in INSTRUCTIONS if line]
    assert last.index("USER") < last.index("ENTRYPOINT")
    (health,) = arguments("HEALTHCHECK")
    (port,) = arguments("EXPOSE")
    assert f"http://127.0.0.1:{port}/healthz" in health
    assert f"CFMON_HTTP__LISTEN=0.0.0.0:{port}" in arguments("ENV")[0]


def test_nothing_is_reported_to_anybody() -> None:
    assert "ORT_DISABLE_TELEMETRY=1" in arguments("ENV")[0]


def test_whatever_is_fetched_has_a_hash_in_a_lock_file() -> None:
    """Debian's packages, which apt verifies, are in the build stage only."""
    fetching = [line for line in arguments("RUN") if re.search(r"\b(pip3?|curl|wget|uv) ", line)]
    assert fetching
    assert [n for n, line in enumerate(INSTRUCTIONS) if "apt-get" in line] == [INSTRUCTIONS.index("WORKDIR /src") + 1]
    assert all("--require-hashes --only-binary :all: --requirement deploy/build.lock" in line for line in fetching)
    (installing,) = (line for line in arguments("RUN") if "install.sh" in line)
    assert re.search(r"install\.sh .*/dist/\*\.whl deploy/requirements\.lock", installing)


def test_the_environment_is_the_one_install_sh_says() -> None:
    script = (ROOT / "deploy" / "install.sh").read_text()
    (said,) = re.findall(r"cat >\"\$prefix/cfmon.env\" <<SETTINGS\n(.*?)SETTINGS", script, flags=re.DOTALL)
    (environment,) = arguments("ENV")
    assert set(said.replace("$prefix", "/opt/cfmon").split()) <= set(environment.split())


def test_the_build_is_given_what_it_copies() -> None:
    given = set((ROOT / "deploy" / "Containerfile.dockerignore").read_text().split())
    assert {f"!{name.rstrip('/')}" for name in copied()} == {line for line in given if line.startswith("!")}


def test_what_it_copies_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in copied():
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(path, source / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    environment = {**os.environ, "MONITOR_UNCOMPILED": "1"}  # to compile takes a minute; test_install.py does it
    done = subprocess.run(build, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith(f"counterfactual_monitor-{VERSION}-")
    names = zipfile.ZipFile(wheel).namelist()
    assert "monitor/__main__.py" in names
    assert {name.partition("/")[0] for name in names} == {"monitor", f"counterfactual_monitor-{VERSION}.dist-info"}
    assert any(name.startswith("monitor/_data/config/") for name in names)
    assert any(name.startswith("monitor/_data/policies/") for name in names)
    assert "monitor/_data/converters/storm_to_umb.py" in names
