"""A disk that is full, under every command that writes: one line, exit code 2, and nothing that was not there before.

This process may not make files larger than some size for a while, which is an error of the file system like a full
disk. What is written at the end of a command needs more space than what is written at its beginning, so there are
several sizes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.errors import RecordingError
from monitor.sidecar.recording import Header
from monitor.sidecar.recording_formats import new_recorder
from tests.cli.stages import faults
from tests.sidecar.alarms import alarm
from tests.sidecar.audited import events, recorded, world
from tests.tiers import first, slow

Run = Callable[..., tuple[int, str, str]]

SIZES = (0, 40, 200, 700, 2000)
"""Bytes that a file may have."""

ROWS = "episode,step,x,action,reward,done\n" + "".join(
    f"{n // 10},{n % 10},{n % 3},{n % 2},{-(n % 10 == 9)},{int(n % 10 == 9)}\n" for n in range(200)
)


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def everything(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}


COMMANDS: dict[str, tuple[str, ...]] = {
    "a model": ("model", "convert", "model.npz", "out.npz"),
    "a model as UMB": ("model", "convert", "model.npz", "out.umb"),
    "a model as PRISM's files": ("model", "convert", "model.npz", "out.tra"),
    "a learned model": ("model", "learn", "steps.csv", "-o", "out.npz"),
    "its reports": ("model", "learn", "steps.csv", "-o", "out.npz", "--report", "out.html", "--report", "out.md"),
    "an environment": ("model", "explore", "gymnasium:FrozenLake-v1?is_slippery=false", "out.npz"),
    "roll-outs": ("model", "explore", "gymnasium:FrozenLake-v1", "out.csv", "--rollouts", "500"),
    "a policy": ("policy", "export", "bold.json", "out.onnx", "--model", "model.npz"),
    "a manifest": ("policy", "init", "net.onnx", "--model", "model.npz"),
    "evidence": ("evidence", "export", "EVIDENCE", "-o", "out.zip"),
    "a picture": ("explain", "EVIDENCE", "-o", "out.svg"),
    "a recording": ("recording", "convert", "steps.csv", "--to", "out.rec", "--state", "x"),
    "a recording as Parquet": ("recording", "convert", "steps.csv", "--to", "out.parquet", "--state", "x"),
    "a first configuration": (
        *("init", "out", "--recordings", "steps.csv", "--unsafe", "bad: done and reward < 0", "--steps", "50"),
        *("--state", "x", "--accept-model"),
    ),
}


@pytest.fixture
def place(workdir: Path, cfmon: Run) -> Path:
    (workdir / "steps.csv").write_text(ROWS)
    one = alarm("regret with bounds")
    one.keep(workdir / "var")
    assert cfmon("policy", "export", "bold.json", "net.onnx", "--model", "model.npz")[0] == 0
    (workdir / "net.yaml").unlink()
    return workdir


@pytest.mark.parametrize("what", COMMANDS)
def test_a_full_disk_is_one_line_and_leaves_everything_as_it_was(what: str, place: Path, cfmon: Run) -> None:
    evidence = f"var/evidence/{alarm('regret with bounds').id}"
    command = [evidence if part == "EVIDENCE" else part for part in COMMANDS[what]]
    before = everything(place)
    for size in SIZES:
        with small_disk(size):
            code, _, err = cfmon(*command)
        if code == 0:
            assert size, "a command that writes needs space"
            return
        assert (code, len(faults(err).splitlines()), "Traceback" in err) == (2, 1, False), err
        assert "cannot be written" in err or "cannot write" in err
        left = everything(place) - before
        # `model learn` keeps its counts as soon as it has them, to go on from there
        assert left <= ({"out.learn.npz", "out.npz"} if command[1] == "learn" else set()), (size, left)
        for name in left:
            (place / name).unlink()
    code, _, err = cfmon(*command)
    assert code == 0, err
    assert everything(place) - before


@pytest.mark.parametrize("size", [0, 40])
def test_what_is_there_already_stays_whole(size: int, place: Path, cfmon: Run) -> None:
    for what in ("a model as PRISM's files", "roll-outs", "a policy"):
        command = (*COMMANDS[what], *(["--force"] if what == "a policy" else []))
        assert cfmon(*command)[0] == 0
        before = files(place)
        with small_disk(size):
            assert cfmon(*command)[0] == 2
        assert files(place) == before


@pytest.mark.parametrize("size", first(2, (0, 100, 300, 3000)))
def test_an_audit_goes_on_once_there_is_space(size: int, tmp_path: Path, cfmon: Run) -> None:
    config, recording = world(tmp_path), recorded(tmp_path / "r.parquet", events(steps=20))
    command = ("audit", str(config), str(recording), "--workers", "1", "--out")
    assert cfmon(*command, str(tmp_path / "whole"))[0] == 0
    with small_disk(size):
        code, _, err = cfmon(*command, str(tmp_path / "out"))
    assert (code, len(faults(err).splitlines()), "Traceback" in err) == (2, 1, False), err
    assert "File too large" in err or "written" in err
    unfinished = [name for name in everything(tmp_path / "out") if "unfinished" in name or name == "report.html"]
    assert unfinished == []
    assert cfmon(*command, str(tmp_path / "out"))[0] == 0
    alerts = [sorted(files(tmp_path / name).items()) for name in ("whole", "out")]
    ours, theirs = ([content for name, content in found if name.endswith("alerts.jsonl")] for found in alerts)
    assert ours == theirs


@slow
def test_an_audit_by_several_processes_says_no_more(tmp_path: Path) -> None:
    config, recording = world(tmp_path), recorded(tmp_path / "r.parquet", events(steps=20))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    own = limited + "import sys; from monitor.cli import main; sys.argv[0] = 'cfmon'; main()"
    command = ["audit", str(config), str(recording), "--workers", "2", "--out", str(tmp_path / "out")]
    ran = subprocess.run([sys.executable, "-c", own, *command], capture_output=True, text=True, check=False)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1), ran.stderr
    assert "cannot be written" in ran.stderr


@pytest.mark.parametrize("size", [0, 40])
def test_a_live_recording_that_cannot_begin_leaves_nothing(size: int, tmp_path: Path) -> None:
    with small_disk(size), pytest.raises(RecordingError, match="cannot be written"):
        new_recorder(tmp_path / "r.parquet", Header("me", "", "", ""), "agents/+/steps")
    assert everything(tmp_path) == set()


@pytest.mark.usefixtures("workdir")
def test_output_that_does_not_fit_is_one_line(cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output may be a file on a full disk, too."""

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("monitor.cli.model_commands.say", full)
    code, _, err = cfmon("model", "info", "model.npz")
    assert (code, err) == (2, "cfmon: a file cannot be written: No space left on device; make space for it\n")
