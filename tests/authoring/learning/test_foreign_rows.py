"""Minari datasets and MCAP files, written here by their own libraries, as recordings."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from mcap.writer import Writer
from mcap_ros2.writer import Writer as RosWriter
from minari import create_dataset_from_buffers
from minari.data_collector import EpisodeBuffer

from monitor.authoring.learning import row_files
from monitor.authoring.learning.columns import guessed
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.mcap_rows import McapRows
from monitor.authoring.learning.row_files import FilePosition, digest_of, open_rows, size_of
from monitor.cli.recorded_inputs import open_recording, recorded_files
from monitor.errors import RecordingError

Episode = tuple[list[Any], list[Any]]


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes episodes, observations and actions, as a Minari dataset and returns its folder."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def write(episodes: list[Any], space: spaces.Space[Any], actions: spaces.Space[Any], kind: str = "hdf5") -> Path:
        buffers = []
        for i, (observations, taken) in enumerate(episodes):
            steps = len(next(iter(taken.values())) if isinstance(taken, dict) else taken)
            last = [t == steps - 1 for t in range(steps)]
            ends = {
                "terminations": [end and i % 2 == 0 for end in last],
                "truncations": [end and i % 2 == 1 for end in last],
            }
            rewards = [float(t) for t in range(steps)]
            buffers.append(
                EpisodeBuffer(id=i, observations=observations, actions=taken, rewards=rewards, infos={}, **ends)
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an author and so on would be nice
            create_dataset_from_buffers(
                f"{kind}/tank-v0", buffers, observation_space=space, action_space=actions, data_format=kind
            )
        return tmp_path / kind / "tank-v0"

    return write


def walks(rng: np.random.Generator, count: int) -> list[Episode]:
    """Episodes of two numbers and one of three actions."""
    found = []
    for _ in range(count):
        steps = int(rng.integers(1, 9))
        found.append(
            (list(rng.normal(size=(steps + 1, 2)).astype(np.float32)), [int(rng.integers(3)) for _ in range(steps)])
        )
    return found


BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)


@pytest.mark.parametrize("kind", ["hdf5", "arrow"])
def test_a_minari_dataset_has_a_row_for_each_step(
    dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(row_files, "ROWS", 20)
    episodes = walks(np.random.default_rng(0), 30)
    folder = dataset(episodes, BOX, spaces.Discrete(3), kind)
    assert recorded_files([folder, folder.parent]) == [folder]
    rows = open_recording(folder, "")
    roles = guessed(rows.names(), {}, "tank")
    assert roles.state == ("observation[0]", "observation[1]")
    assert roles.next_state == ("next_observation[0]", "next_observation[1]")
    assert (roles.action, roles.episode, roles.order) == ("action", "episode", "step")
    assert (roles.reward, roles.terminated, roles.truncated) == ("reward", "terminated", "truncated")
    batches = list(rows.batches(rows.names()))
    assert len(batches) > 3
    assert all(len(batch) >= 20 for batch in batches[:-1])
    assert [batch.first for batch in batches] == [1 + sum(map(len, batches[:i])) for i in range(len(batches))]
    at = 0
    whole = {name: np.concatenate([batch.columns[name] for batch in batches]) for name in rows.names()}
    for i, (observations, actions) in enumerate(episodes):
        for t, action in enumerate(actions):
            here = [whole[f"observation[{d}]"][at] for d in range(2)]
            after = [whole[f"next_observation[{d}]"][at] for d in range(2)]
            assert here == pytest.approx(observations[t].tolist())
            assert after == pytest.approx(observations[t + 1].tolist())
            last = t == len(actions) - 1
            found = [whole[name][at] for name in ("episode", "step", "action", "reward", "terminated", "truncated")]
            assert found == [i, t, action, t, last and i % 2 == 0, last and i % 2 == 1]
            at += 1
    assert at == len(whole["step"])
    again = list(open_rows(folder).batches(["reward"], FilePosition(batches[1].first + len(batches[1]) - 1)))
    assert [batch.first for batch in again] == [batch.first for batch in batches[2:]]
    assert (
        np.concatenate([batch.columns["reward"] for batch in again]).tolist()
        == whole["reward"][again[0].first - 1 :].tolist()
    )
    assert rows.position <= size_of(folder) * 1.1


def test_a_model_is_learned_from_a_minari_dataset(dataset: Callable[..., Path]) -> None:
    episodes = [([0, 1, 2, 1, 2], [0, 1, 0, 1])] * 4
    rows = open_rows(dataset(episodes, spaces.Discrete(3), spaces.Discrete(2)))
    roles = guessed(rows.names(), {}, "f")
    learner = Learner.new(roles, None, [], 1.0)
    for batch in rows.batches(roles.used):
        learner.read(batch)
    learner.end_file()
    model = learner.model("m")
    assert learner.tally.draws == 16
    assert model.row(0, 0)[0].tolist() == [1]
    assert model.ended_as is not None
    assert model.ended_as[2] == 3
    assert model.reward(1, 1, 2) == pytest.approx((4 * 1 + 2 * 3) / 6)  # the last step of two episodes is cut off there


def test_maps_and_tuples_become_columns_and_pictures_do_not(dataset: Callable[..., Path]) -> None:
    space = spaces.Dict({"at": BOX, "door": spaces.Discrete(2), "eye": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
    observations = {
        "at": list(np.zeros((4, 2), np.float32)),
        "door": [0, 1, 0, 1],
        "eye": list(np.zeros((4, 4, 4, 3), np.uint8)),
    }
    both = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)))
    actions = {"push": [0, 1, 0], "turn": ([0, 1, 1], list(np.zeros((3, 1), np.float32)))}
    folder = dataset([(observations, actions)], space, spaces.Dict({"push": spaces.Discrete(2), "turn": both}))
    names = open_rows(folder).names()
    assert names[2:6] == ("observation.at[0]", "observation.at[1]", "observation.door", "next_observation.at[0]")
    assert {"action.push", "action.turn[0]", "action.turn[1][0]"} <= set(names)
    assert not [name for name in names if "eye" in name]


def test_a_minari_dataset_that_cannot_be_read_is_one_error(dataset: Callable[..., Path]) -> None:
    folder = dataset(walks(np.random.default_rng(0), 2), BOX, spaces.Discrete(3))
    digest = digest_of(folder)
    with pytest.raises(RecordingError, match=r"there is no column 'z'; it has episode, step, observation.0."):
        list(open_rows(folder).batches(["z"]))
    metadata = folder / "data" / "metadata.json"
    about = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({key: value for key, value in about.items() if "space" not in key}))
    assert digest_of(folder) != digest
    with pytest.raises(RecordingError, match=r"its spaces are not stored; write it with minari 0.5 or later"):
        open_rows(folder)
    metadata.write_text("{")
    with pytest.raises(RecordingError, match="tank-v0: cannot be read"):
        open_rows(folder)
    metadata.write_text(json.dumps(about))
    (folder / "data" / "main_data.hdf5").write_bytes(b"nothing")
    with pytest.raises(RecordingError, match="tank-v0: cannot be read"):
        open_rows(folder).names()


def test_a_minari_dataset_without_steps_is_empty(dataset: Callable[..., Path]) -> None:
    folder = dataset([([0], [])], spaces.Discrete(3), spaces.Discrete(2), "arrow")
    with pytest.raises(RecordingError, match="is empty"):
        open_rows(folder).names()


def mcap(path: Path, messages: list[tuple[str, bytes]], *, encoding: str = "json") -> Path:
    """A file with these messages, latest first, as their log times put them in order."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channels = {
            topic: writer.register_channel(topic, encoding, 0)
            for topic in dict.fromkeys(topic for topic, _ in messages)
        }
        for n, (topic, data) in reversed(list(enumerate(messages))):
            writer.add_message(channels[topic], log_time=n, data=data, publish_time=n)
        writer.finish()  # type: ignore[no-untyped-call]
    return path


def test_json_messages_of_an_mcap_file_are_rows_in_order_of_time(tmp_path: Path) -> None:
    steps = [{"episode": n // 3, "t": n % 3, "state": [n, -n], "act": n % 2} for n in range(9)]
    path = mcap(tmp_path / "log.mcap", [("/steps", json.dumps(step).encode()) for step in steps])
    assert recorded_files([tmp_path]) == [path]
    rows = open_recording(path, "agents/+/steps")
    assert rows.names() == ("episode", "t", "state[0]", "state[1]", "act")
    (batch,) = rows.batches(("state[0]", "t"))
    assert batch.columns["state[0]"].tolist() == list(range(9))
    (rest,) = rows.batches(("state[1]",), FilePosition(7, {"state[1]": "i"}))
    assert (rest.first, rest.columns["state[1]"].tolist()) == (8, [-7, -8])


def test_one_topic_of_several_is_chosen(tmp_path: Path) -> None:
    path = mcap(tmp_path / "log.mcap", [("/a", b'{"x": 1}'), ("/b", b'{"x": 2}')])
    with pytest.raises(RecordingError, match="several topics can be read; give one of /a, /b by --topic"):
        McapRows(path, "agents/+/steps").names()
    (batch,) = McapRows(path, "/b").batches(("x",))
    assert batch.columns["x"].tolist() == [2]


@pytest.mark.parametrize(
    ("messages", "encoding", "problem"),
    [
        ([("/a", b"[1]")], "json", "is empty"),
        ([("/a", b"{}")], "cdr", "no topic has JSON messages, or those of ROS 2 with their definitions"),
        ([], "json", "no topic has JSON messages"),
    ],
)
def test_an_mcap_file_without_json_maps_is_refused(
    tmp_path: Path, messages: list[tuple[str, bytes]], encoding: str, problem: str
) -> None:
    path = mcap(tmp_path / "log.mcap", messages, encoding=encoding)
    with pytest.raises(RecordingError, match=problem):
        McapRows(path, "").names()


COMMAND = """\
builtin_interfaces/Time stamp
string run
float64[2] level
int32 valve
bool done
uint8[] picture
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""


def test_messages_of_ros_2_are_rows(tmp_path: Path) -> None:
    bag = tmp_path / "bag"
    bag.mkdir()
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: {version: 9}\n")
    with (bag / "bag_0.mcap").open("wb") as file:
        writer = RosWriter(file)
        schema = writer.register_msgdef("plant_msgs/msg/Step", COMMAND)
        for n in range(6):
            stamp = {"sec": 100 + n // 2, "nanosec": 500_000_000 * (n % 2)}
            step = {"stamp": stamp, "run": f"r{n // 3}", "level": [n, 0.5], "valve": n % 2, "done": n % 3 == 2}
            writer.write_message("/steps", schema, {**step, "picture": b"abc"}, n, n)
        writer.finish()  # type: ignore[no-untyped-call]
    (path,) = recorded_files([bag])
    rows = open_recording(path, "agents/+/steps")  # no such topic, but there is only one
    assert rows.names() == ("stamp", "run", "level[0]", "level[1]", "valve", "done")
    (batch,) = rows.batches(rows.names())
    assert batch.columns["stamp"].tolist() == [100, 100.5, 101, 101.5, 102, 102.5]
    assert batch.columns["level[0]"].tolist() == list(range(6))
    assert batch.columns["run"].tolist() == ["r0"] * 3 + ["r1"] * 3
    assert batch.columns["done"].tolist() == [False, False, True] * 2


def test_a_message_of_ros_2_that_is_cut_off_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "log.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("std_msgs/msg/Float64", "ros2msg", b"float64 data\n")
        channel = writer.register_channel("/x", "cdr", schema)
        for n, data in enumerate((struct.pack("<4xd", 1.5), b"\0\1\0\0\0", struct.pack("<4xd", 2.5))):
            writer.add_message(channel, log_time=n, data=b"\0\1\0\0" + data[4:], publish_time=n)
        writer.finish()  # type: ignore[no-untyped-call]
    (batch,) = open_recording(path, "").batches(("data",))
    assert batch.columns["data"].tolist() == [1.5, 2.5]
    assert {reason: numbers.tolist() for reason, numbers in batch.torn.items()} == {"torn": [2]}


def test_a_damaged_mcap_file_is_refused(tmp_path: Path) -> None:
    path = mcap(tmp_path / "log.mcap", [("/a", json.dumps({"x": n}).encode()) for n in range(100)])
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[120:140] = bytes(20)
    for bad in (b"", content[:40], content[:-40], bytes(damaged), b"no mcap at all" * 9):
        path.write_bytes(bad)
        with pytest.raises(RecordingError, match=r"log.mcap: (cannot be read|has no summary|is empty)"):
            list(McapRows(path, "").batches(("x",)))
