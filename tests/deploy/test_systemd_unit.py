"""The systemd unit: systemd reads it without complaint and finds it confined; it agrees with what install.sh leaves."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "cfmon.service"
SHARD = DEPLOY / "systemd" / "cfmon@.service"
MOST_EXPOSED = 2.0
"""On systemd's scale from 0 (confined) to 10; it calls up to 2 `OK` and a unit without any of this 9.6 `UNSAFE`."""


def settings(section: str) -> dict[str, list[str]]:
    """Every value of every key, in order: a unit may name a key more than once."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in UNIT.read_text().splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            inside = match[1]
        elif inside == section and not line.startswith("#") and "=" in line:
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing (Debian: systemd)")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def test_systemd_reads_it_without_complaint(tmp_path: Path) -> None:
    program = tmp_path / "cfmon"  # must be there and executable for this check
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "cfmon.service"
    unit.write_text(UNIT.read_text().replace("/opt/cfmon/bin/cfmon", str(program)))
    done = analyze("verify", "--recursive-errors=no", "--man=no", str(unit))
    assert done.returncode == 0, done.stderr
    assert "cfmon.service" not in done.stderr, done.stderr
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=soon"))
    assert "cfmon.service" in analyze("verify", "--recursive-errors=no", "--man=no", str(unit)).stderr


def test_systemd_finds_it_confined(tmp_path: Path) -> None:
    ask = ("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}")
    assert analyze(*ask, str(UNIT)).returncode == 0
    unconfined = tmp_path / "cfmon.service"
    unconfined.write_text("[Service]\nExecStart=/bin/true\n")
    assert (
        analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", str(unconfined)).returncode != 0
    )


def test_it_is_where_and_who_install_sh_says() -> None:
    service = settings("Service")
    script = (DEPLOY / "install.sh").read_text()
    defaults = re.search(r"(?m)^prefix=(\S+) state=(\S+) user=(\S+) ", script)
    assert defaults
    prefix, state, user = defaults.groups()
    assert service["ExecStart"][0].startswith(f"{prefix}/bin/cfmon run ")
    assert service["EnvironmentFile"][0] == f"{prefix}/cfmon.env"
    assert service["User"] == service["Group"] == [user]
    assert [f"/var/lib/{folder}" for folder in service["StateDirectory"]] == [state] == service["WorkingDirectory"]
    assert service["Environment"] == [f"CFMON_STORE__PATH={state}/cfmon.sqlite"]


def test_it_is_started_again_whatever_happens_and_watched() -> None:
    service = settings("Service")
    assert service["Type"] == ["notify"]
    assert service["Restart"] == ["always"]
    assert settings("Unit")["StartLimitIntervalSec"] == ["0"]
    assert re.fullmatch(r"\d+s", service["WatchdogSec"][0])


def test_the_unit_of_a_shard_differs_only_in_what_is_its_own() -> None:
    """systemd's %i is `3-8` for cfmon@3-8.service, and %I is `3/8`."""
    ours, theirs = (
        [line for line in path.read_text().splitlines() if line and not line.startswith("#")] for path in (UNIT, SHARD)
    )
    added = [line for line in theirs if line not in ours]
    assert [line for line in ours if line not in theirs] == [
        "Description=Counterfactual monitor",
        "Environment=CFMON_STORE__PATH=/var/lib/cfmon/cfmon.sqlite",
        "StateDirectory=cfmon",
        "WorkingDirectory=/var/lib/cfmon",
    ]
    assert added == [
        "Description=Counterfactual monitor, shard %I",
        "EnvironmentFile=-/etc/cfmon/shard-%i.env",
        "Environment=CFMON_STORE__PATH=/var/lib/cfmon/%i/cfmon.sqlite",
        "Environment=CFMON_MQTT__SHARD=%I",
        "StateDirectory=cfmon/%i",
        "WorkingDirectory=/var/lib/cfmon/%i",
    ]


def test_systemd_reads_the_unit_of_a_shard_without_complaint(tmp_path: Path) -> None:
    program = tmp_path / "cfmon"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "cfmon@3-8.service"
    unit.write_text(SHARD.read_text().replace("/opt/cfmon/bin/cfmon", str(program)))
    done = analyze("verify", "--recursive-errors=no", "--man=no", str(unit))
    assert done.returncode == 0, done.stderr
    assert "cfmon@" not in done.stderr, done.stderr
