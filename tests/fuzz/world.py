"""A small project on disk, what it reads as, and one true input of every kind, for fuzzing to start from."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import msgpack

from monitor.model import MDP
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.recording import Header, Recorder
from monitor.types import Instant
from tests.sidecar.project import write_project

__all__ = ["evidence", "folder", "loaded", "parquet", "parquet_folder", "recording", "step", "steps"]

RASH, CAREFUL, LOST, HOME = 0, 1, 4, 5


@cache
def folder() -> Path:
    """A folder that goes when the process ends."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # files are written by the million
    made = Path(tempfile.mkdtemp(prefix="cfmon-fuzz-", dir=memory))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def loaded() -> Loaded:
    """A corridor: states 0..3 in a row, 4 lost, 5 home. Rash moves on fast and may be lost; careful gets home."""
    rows = [(s, RASH, min(s + 1, 3), 0.5) for s in range(4)] + [(s, RASH, LOST, 0.5) for s in range(4)]
    rows += [(s, CAREFUL, s, 0.9) for s in range(4)] + [(s, CAREFUL, HOME, 0.1) for s in range(4)]
    rows += [(s, a, s, 1.0) for s in (LOST, HOME) for a in (RASH, CAREFUL)]
    model = MDP.from_transitions(
        states=6,
        actions=2,
        transitions=rows,
        rewards=[(0, RASH, 1.0)],
        labels={"lost": [LOST], "home": [HOME]},
        initial={0: 1.0},
        state_names=["zero", "one", "two", "three", "lost", "home"],
        action_names=["rash", "careful"],
        bin_edges=[[0.0, 1.0, 2.0, 3.0], [0.0, 0.5, 1.0]],
        centres=[[float(s), -1.0] for s in range(6)],
        scales=[1.0, 2.0],
        valuations=[[s, s % 2 == 0, str(s)] for s in range(6)],
    )
    return assemble(write_project(folder() / "project", model), {})


def step(seq: int, state: object, action: object = RASH, **more: object) -> dict[str, object]:
    """A message of an agent as plain data."""
    return {"v": 1, "episode": "e", "seq": seq, "state": state, "action": action, "time": 1000.0 + seq, **more}


def steps() -> list[Event]:
    """An episode in which an alarm fires, with all that may happen beside it."""
    events: list[Event] = [Connected(Instant(1000.0, 0.0), up=True)]
    for seq, state in enumerate((0, 1, 2, 3, 3, LOST)):
        now = Instant(1001.0 + seq, 1.0 + seq)
        sent = msgpack.packb(step(seq, state, terminated=state == LOST))
        events += [Message(now, "agents/ada/steps", sent), Evaluate(now)]
    later = Instant(1010.0, 10.0)
    return [*events, Lost(later, "agents/ada/steps", 2), Heartbeat(later), Evaluate(later, latest_only=True)]


@cache
def evidence() -> bytes:
    """The evidence of the first alarm of `steps`."""
    pipeline = loaded().pipeline("fuzz")
    return next(file.content for event in steps() for file in pipeline.step(event).evidence)


@cache
def parquet() -> bytes:
    """`steps`, recorded as Parquet in one file: no agent has a topic of this pattern, so all are in one bucket."""
    return next(parquet_folder("true").glob("date=*/bucket=all/*")).read_bytes()


@cache
def parquet_folder(name: str) -> Path:
    """A recording as Parquet."""
    path = folder() / f"{name}.parquet"
    recorder = ParquetRecorder(path, Header("fuzz", "0" * 64, "1" * 64, "0.1"), "nobody/+", live=False)
    for event in steps():
        recorder.write(event)
    recorder.close()
    return path


@cache
def recording() -> bytes:
    """`steps`, recorded."""
    path = folder() / "true.recording"
    recorder = Recorder(path, Header("fuzz", "0" * 64, "1" * 64, "0.1"))
    for event in steps():
        recorder.write(event)
    recorder.close()
    return path.read_bytes()
