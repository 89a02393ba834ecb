"""`cfmon recording convert`: Parquet and back without a difference; tables of steps as a live agent would send them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from mcap.writer import Writer
from minari import create_dataset_from_buffers
from minari.data_collector import EpisodeBuffer
from pyarrow import parquet

from monitor.cli.input_files import data_file
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.sidecar.recording import Header, Recorder
from monitor.sidecar.recording_formats import open_recording
from monitor.types import Instant

Run = Callable[..., tuple[int, str, str]]
HEADER = Header("client", "c" * 64, "m" * 64, "0")
ROWS = [
    {"agent": "ada", "episode": 0, "step": 0, "state": 3, "action": 1, "reward": 0.5, "done": 0, "time": 86399.0},
    {"agent": "bob", "episode": 7, "step": 0, "state": 2, "action": 1, "reward": 2.0, "done": 0, "time": 86399.5},
    {"agent": "ada", "episode": 0, "step": 1, "state": 4, "action": 0, "reward": 0.25, "done": 1, "time": 86400.0},
    {"agent": "ada", "episode": 1, "step": 0, "state": 0, "action": 1, "reward": 1.0, "done": 0, "time": 86401.0},
]
SENT = [
    ("ada", {"v": 1, "episode": 0, "seq": 0, "state": 3, "action": 1, "time": 86399.0}),
    ("bob", {"v": 1, "episode": 7, "seq": 0, "state": 2, "action": 1, "time": 86399.5}),
    (
        "ada",
        {"v": 1, "episode": 0, "seq": 1, "state": 4, "action": 0, "reward": 0.5, "truncated": True, "time": 86400.0},
    ),
    ("ada", {"v": 1, "episode": 1, "seq": 0, "state": 0, "action": 1, "time": 86401.0}),
]


def sent(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Agents and messages of a recording."""
    with open_recording(path) as recording:
        messages = [event for event in recording if isinstance(event, Message)]
    return [(message.topic.split("/")[1], json.loads(message.payload)) for message in messages]


def table(name: str, folder: Path) -> Path:
    path = folder / name
    match path.suffix:
        case ".csv":
            lines = [",".join(map(str, row.values())) for row in ROWS]
            path.write_text("\n".join([",".join(ROWS[0]), *lines]))
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, ROWS)))
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(ROWS), path)
        case _:
            with pa.ipc.new_file(path, (found := pa.Table.from_pylist(ROWS)).schema) as file:
                file.write_table(found)
    return path


@pytest.mark.parametrize("name", ["steps.csv", "steps.jsonl", "steps.parquet", "steps.arrow"])
def test_a_table_becomes_what_its_agents_would_have_sent(tmp_path: Path, cfmon: Run, name: str) -> None:
    code, out, _ = cfmon("recording", "convert", str(table(name, tmp_path)), "--to", str(tmp_path / "to.parquet"))
    assert (code, out) == (0, f"{tmp_path / 'to.parquet'}: 9 events\n")
    assert sent(tmp_path / "to.parquet") == SENT
    found = list(open_recording(tmp_path / "to.parquet"))
    assert found[0] == Connected(Instant(86399.0, 86399.0), up=True)
    assert [isinstance(event, Evaluate) for event in found[1:]] == [False, True] * 4


def test_a_minari_dataset_is_converted(
    tmp_path: Path, cfmon: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffer = EpisodeBuffer(
        id=0, observations=np.array([3, 4, 5]), actions=np.array([1, 0]), rewards=[0.5, 0.25],
        terminations=[False, True], truncations=[False, False], infos={},
    )  # fmt: skip
    both = {"observation_space": spaces.Discrete(6), "action_space": spaces.Discrete(2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an author and so on would be nice
        create_dataset_from_buffers("tiny-v0", [buffer], **both)
    capsys.readouterr()
    target = tmp_path / "to.rec"
    code, _, err = cfmon(
        "recording", "convert", str(tmp_path / "tiny-v0"), "--to", str(target), "--next-state", "next_observation"
    )
    assert code == 0, err
    assert [message for _, message in sent(target)] == [
        {"v": 1, "episode": 0, "seq": 0, "state": 3, "action": 1, "time": 0.0},
        {"v": 1, "episode": 0, "seq": 1, "state": 4, "reward": 0.5, "action": 0, "time": 1.0},
        {"v": 1, "episode": 0, "seq": 2, "state": 5, "terminated": True, "reward": 0.25, "time": 1.0},
    ]


def write_mcap(path: Path, messages: Iterable[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel(topic="/steps", message_encoding="json", schema_id=0)
        for n, message in enumerate(messages):
            writer.add_message(channel, log_time=n, publish_time=n, data=json.dumps(message).encode())
        writer.finish()  # type: ignore[no-untyped-call]


def test_messages_of_an_mcap_file_are_converted(tmp_path: Path, cfmon: Run) -> None:
    write_mcap(tmp_path / "steps.mcap", [{"truncated": False, **message} for _, message in SENT])
    target = tmp_path / "to.parquet"
    code, _, err = cfmon(
        *("recording", "convert", str(tmp_path / "steps.mcap"), "--to", str(target)),
        *("--topic", "/steps", "--agent", "ada"),
    )
    assert code == 0, err
    assert sent(target) == [("ada", message) for _, message in SENT]


def test_parquet_and_back_gives_the_same_bytes(tmp_path: Path, cfmon: Run) -> None:
    original = tmp_path / "one.rec"
    recorder = Recorder(original, HEADER)
    many: list[Event] = [Message(Instant(0.0, 0.0), "agents/ada/steps", b"\xff"), Evaluate(Instant(9e9, 0.5), steps=3)]
    for event in many:
        recorder.write(event)
    recorder.close()
    for source, target in (("one.rec", "two.parquet"), ("two.parquet", "three.parquet"), ("three.parquet", "four.rec")):
        code, out, _ = cfmon("recording", "convert", str(tmp_path / source), "--to", str(tmp_path / target), "--json")
        assert code == 0
        assert json.loads(out) == {"source": str(tmp_path / source), "target": str(tmp_path / target), "events": 2}
    assert (tmp_path / "four.rec").read_bytes() == original.read_bytes()


def test_a_row_missing_from_usual_times_is_missing_from_the_count(tmp_path: Path, cfmon: Run) -> None:
    kept = [t for t in range(80) if t not in (11, 20, 21)]
    lines = [f"{t % 3},0,2026-05-04T{t // 4:02}:{t % 4 * 15:02}:00" for t in kept]
    (tmp_path / "a.csv").write_text("\n".join(["state,action,time", *lines]))
    assert cfmon("recording", "convert", str(tmp_path / "a.csv"), "--to", str(tmp_path / "to.rec"))[0] == 0
    assert [message["seq"] for _, message in sent(tmp_path / "to.rec")] == kept


def test_a_replay_of_the_converted_recording_prints_the_same(tmp_path: Path, cfmon: Run) -> None:
    config = str(data_file("config/frozen-lake.yaml"))
    original = tmp_path / "one.rec"
    recorder = Recorder(original, HEADER)
    recorder.write(Connected(Instant(0.0, 0.0), up=True))
    for n in range(20):
        now = Instant(float(n), float(n))
        step = {"v": 1, "episode": 1, "seq": n, "state": 4 if n else 0, "action": 0}
        recorder.write(Message(now, "agents/ada/steps", json.dumps(step).encode()))
        recorder.write(Evaluate(now))
    recorder.close()
    assert cfmon("recording", "convert", str(original), "--to", str(tmp_path / "two.parquet"))[0] == 0
    outputs = [cfmon("replay", config, str(path))[1] for path in (original, tmp_path / "two.parquet")]
    assert outputs[0] == outputs[1]
    assert '"topic":"cfmon/' in outputs[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b,0,0,3,1,0.5,0,1.0", "agent's name does not fit a topic"),
        ("ada,0,0,,1,0.5,0,1.0", "row 2: the state is missing"),
        ("ada,,0,3,1,0.5,0,1.0", "row 2: the episode is missing"),
        ("ada,0,0,3,1,0.5,0,", "row 2: column 'time' is empty; write seconds since 1970"),
    ],
)
def test_a_row_that_cannot_be_converted_is_named_and_nothing_is_left(
    tmp_path: Path, cfmon: Run, line: str, expected: str
) -> None:
    source = tmp_path / "steps.csv"
    source.write_text("\n".join([",".join(ROWS[0]), "ada,0,0,3,1,0.5,0,1.0", line, line]))
    for name in ("to.parquet", "to.rec"):
        code, _, err = cfmon("recording", "convert", str(source), "--to", str(tmp_path / name))
        assert code == 2
        assert expected in err
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("rows", "seqs"),
    [
        ("episode,step\n0,0\n0,1\n1,2\n1,3", [(0, 0), (0, 1), (1, 0), (1, 1)]),  # a counter over all episodes
        ("episode,step\n0,1\n0,2\n1,1\n1,2", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("episode,step\n0,0\n1,0\n0,1\n1,1", [(0, 0), (1, 0), (0, 1), (1, 1)]),
        ("episode,step\n0,0\n0,1\n1,7\n1,9", [(0, 0), (0, 1), (1, 7), (1, 9)]),  # its beginning is missing
        ("episode,time\n0,0.5\n0,0.5\n1,7\n1,9", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("time\n2026-05-04T07:00:00Z\n2026-05-04T07:00:00Z\n2026-05-04T07:00:09Z", [(0, 0), (0, 1), (0, 2)]),
        ("step\n0\n1\n2\n0\n0\n1", [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]),
        ("time\n0\n0\n0\n1\n1\n1\n2", [(0, n) for n in range(7)]),
    ],
)
def test_every_form_of_order_becomes_the_seq_of_an_agent(
    tmp_path: Path, cfmon: Run, rows: str, seqs: list[tuple[int, int]]
) -> None:
    head, *lines = rows.splitlines()
    (tmp_path / "a.csv").write_text("\n".join([f"state,action,{head}", *(f"1,0,{line}" for line in lines)]))
    code, _, err = cfmon("recording", "convert", str(tmp_path / "a.csv"), "--to", str(tmp_path / "to.rec"))
    assert code == 0, err
    assert [(step["episode"], step["seq"]) for _, step in sent(tmp_path / "to.rec")] == seqs


@pytest.mark.parametrize(("reward", "paid"), [("0.5", 1.5), ("", 1.0)])
def test_the_row_of_a_last_state_ends_the_episode_and_pays_its_last_step(
    tmp_path: Path, cfmon: Run, reward: str, paid: float
) -> None:
    (tmp_path / "a.csv").write_text(f"episode,step,state,action,reward,done\n0,0,1,0,1,0\n0,1,2,,{reward},1\n")
    source, target = str(tmp_path / "a.csv"), str(tmp_path / "to.rec")
    code, _, err = cfmon("recording", "convert", source, "--to", target, "--reward", "reward", "--terminated", "done")
    assert code == 0, err
    first, last = (step for _, step in sent(tmp_path / "to.rec"))
    assert "reward" not in first
    assert (last["state"], last.get("terminated"), last["reward"]) == (2, True, paid)
    assert "action" not in last


@pytest.mark.parametrize("rows", ["episode,step\n0,0\n0,1\n0,1\n0,2", "episode,step\n0,2\n0,1", "step\n0\n1\n1\n2"])
def test_rows_out_of_order_are_not_converted(tmp_path: Path, cfmon: Run, rows: str) -> None:
    head, *lines = rows.splitlines()
    (tmp_path / "a.csv").write_text("\n".join([f"state,action,{head}", *(f"1,0,{line}" for line in lines)]))
    code, _, err = cfmon("recording", "convert", str(tmp_path / "a.csv"), "--to", str(tmp_path / "to.rec"))
    assert code == 2
    assert "step is 1 after " in err


def test_what_exists_is_not_replaced(tmp_path: Path, cfmon: Run) -> None:
    source = table("steps.csv", tmp_path)
    (tmp_path / "to.rec").write_text("mine")
    code, _, err = cfmon("recording", "convert", str(source), "--to", str(tmp_path / "to.rec"))
    assert code == 2
    assert "already exists" in err
    assert (tmp_path / "to.rec").read_text() == "mine"


def test_a_folder_of_several_tables_is_refused(tmp_path: Path, cfmon: Run) -> None:
    table("a.csv", tmp_path)
    table("b.csv", tmp_path)
    code, _, err = cfmon("recording", "convert", str(tmp_path), "--to", str(tmp_path / "to.rec"))
    assert code == 2
    assert "convert them one by one" in err
