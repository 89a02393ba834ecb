"""Logs of a team as they are: folders of other tools, and rows that are bad, by the commands."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor.authoring.learning.companion import companion_of, part_of

Run = Callable[..., tuple[int, str, str]]

LOG = "run,step,level,action,done\n" + "".join(
    f"{run},{t},{(3 * run + t) % 7},{(run + t) % 2},{'y' if t == 9 else 'n'}\n" for run in range(40) for t in range(10)
)


def spoilt(*lines: int) -> str:
    """The log with these of its 400 rows torn."""
    rows = LOG.splitlines()
    return "\n".join(row[:-3] if n in lines else row for n, row in enumerate(rows)) + "\n"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_few_bad_rows_are_listed_and_more_are_refused_without_a_trace(cfmon: Run) -> None:
    Path("log.csv").write_text(spoilt(15, 120))
    learn = ("model", "learn", "log.csv", "--state", "level", "--label", "full: level >= 5")
    code, _, err = cfmon(*learn, "-o", "m.npz")
    assert code == 2
    assert "m.npz: left out: 2 of 400 rows: torn (15; 120); more than --skip-bad 0.1%,5% allows" in err
    assert "by --skip-bad 0.5%" in err
    assert not any(path.exists() for path in (Path("m.npz"), companion_of(Path("m.npz")), part_of(Path("m.npz"))))
    code, out, _ = cfmon(*learn, "-o", "m.npz", "--skip-bad", "0.5%")
    assert code == 0
    assert "m.npz: left out: 2 of 400 rows: torn (15; 120)\n" in out
    facts = json.loads(cfmon(*learn, "-o", "n.npz", "--skip-bad", "2", "--json")[1])
    assert facts["rows left out"] == {
        "rows": 400,
        "counts": {"torn": 2},
        "first": {"torn": [["log.csv", 15], ["log.csv", 120]]},
    }
    assert facts["transitions counted"] == 400 - 2 * 2, "the two steps of each; the last step of a run leads to its end"
    assert facts["gaps"] == 0, "they are named already"
    Path("more.csv").write_text(spoilt(7, 8, 9))
    kept = companion_of(Path("m.npz")).read_bytes()
    code, _, err = cfmon("model", "learn", "more.csv", "--append", "m.npz", "--skip-bad", "2")
    assert (code, "more than --skip-bad 2 allows" in err) == (2, True)
    assert companion_of(Path("m.npz")).read_bytes() == kept, "the counts are those before"
    code, out, _ = cfmon("model", "learn", "more.csv", "--append", "m.npz", "--skip-bad", "3")
    assert (code, "left out: 5 of 800 rows: torn (log.csv 15; log.csv 120; more.csv 7; 2 more)" in out) == (0, True)


def test_a_packed_log_gives_the_same_model(cfmon: Run) -> None:
    Path("log.csv").write_text(LOG)
    Path("log.csv.gz").write_bytes(gzip.compress(LOG.encode()))
    Path("log.csv.zst").write_bytes(pa.compress(LOG.encode(), "zstd", asbytes=True))
    digests = set()
    for n, name in enumerate(("log.csv", "log.csv.gz", "log.csv.zst")):
        facts = json.loads(cfmon("model", "learn", name, "-o", f"{n}.npz", "--state", "level", "--json")[1])
        digests.add(facts["sha256"])
    assert len(digests) == 1


@pytest.mark.parametrize("route", ["--no-dynamics", "--dynamics"])
def test_init_leaves_out_bad_rows_up_to_the_limit(cfmon: Run, route: str) -> None:
    Path("log.csv").write_text(spoilt(15))
    init = ("init", "tank", "--recordings", "log.csv", "--state", "level", "--unsafe", "full: level >= 6", route)
    code, _, err = cfmon(*init, "--steps", "100")
    assert (code, "left out: 1 of 400 rows: torn (15); more than --skip-bad 0.1%,5% allows" in err) == (2, True), err
    code, out, err = cfmon(*init, "--steps", "100", "--skip-bad", "1%", "--accept-model")
    assert (code, "left out: 1 of 400 rows: torn (15)\n" in out) == (0, True), err


def test_a_lerobot_dataset_is_its_data(cfmon: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pick"
    for name in ("meta", "data/chunk-000"):
        (folder / name).mkdir(parents=True)
    (folder / "meta/info.json").write_text('{"codebase_version": "v2.1", "fps": 10}')
    (folder / "meta/episodes.jsonl").write_text('{"episode_index": 0, "tasks": ["pick"], "length": 4}\n')
    for episode in range(3):
        columns = {
            "observation.state": pa.array([[t, -t] for t in range(4)], pa.list_(pa.float32(), 2)),
            "action": pa.array([[t % 2] for t in range(4)], pa.list_(pa.float32(), 1)),
            "timestamp": pa.array([t / 10 for t in range(4)], pa.float32()),
            "frame_index": list(range(4)),
            "episode_index": [episode] * 4,
            "index": list(range(4 * episode, 4 * episode + 4)),
            "task_index": [0] * 4,
            "next.done": [t == 3 for t in range(4)],
        }
        parquet.write_table(pa.table(columns), folder / f"data/chunk-000/episode_{episode:06}.parquet")
    code, out, err = cfmon("model", "learn", str(folder), "-o", str(tmp_path / "m.npz"), "--unsafe", "over: next.done")
    assert (code, err) == (0, "")
    shown = [" ".join(line.split()) for line in out.splitlines()]
    assert "state observation.state[0], observation.state[1]" in shown
    assert {"action action[0]", "episode episode_index", "order frame_index", "terminated next.done"} <= set(shown)
    assert "12 transitions in 3 episodes" in out  # the last of each to an end whose state is not recorded


TIMED = "run,time,level,action\n" + "".join(
    f"{run},2026-05-04T{run // 60:02}:{run % 60:02}:{2 * t:02}Z,{(3 * run + t) % 7},{(run + t) % 2}\n"
    for run in range(80)
    for t in range(20)
)


@pytest.mark.parametrize(("log", "cuts"), [(LOG, (15, 223)), (TIMED, (33, 610, 1207))])
def test_an_episode_goes_on_in_the_next_file_of_a_rotated_log(cfmon: Run, log: str, cuts: Sequence[int]) -> None:
    head, *rows = log.splitlines()
    Path("log").mkdir()
    for number, (begin, end) in enumerate(pairwise([0, *cuts, len(rows)])):
        Path(f"log/2026-{number:02}.csv").write_text("\n".join([head, *rows[begin:end]]))
    Path("whole.csv").write_text(log)
    options = ("--state", "level", "--unsafe", "high: level >= 6")
    whole, parts = (
        json.loads(cfmon("model", "learn", source, "-o", f"{source}.npz", *options, "--json")[1])
        for source in ("whole.csv", "log")
    )
    assert parts["sha256"] == whole["sha256"]
    assert parts["episodes that begin late"] == 0
    said = f"{len(cuts)} files joined with the next, whose first row has the same episode, one step later in "
    assert said in parts["notes on rows"][0]
    assert whole["notes on rows"] == []


def test_files_that_number_their_own_episodes_are_not_joined(cfmon: Run) -> None:
    head, *rows = LOG.splitlines()
    Path("log").mkdir()
    for number in range(4):
        part = [row.replace(f"{10 * number + each},", f"{each},", 1) for each in range(10) for row in rows[
            100 * number + 10 * each : 100 * number + 10 * each + 10]]  # fmt: skip
        Path(f"log/{number}.csv").write_text("\n".join([head, *part[:-3]]))  # the last episode has no end
    code, out, _ = cfmon("model", "learn", "log", "-o", "m.npz", "--state", "level", "--json")
    facts = json.loads(out)
    assert (code, facts["episodes"], facts["notes on rows"]) == (0, 40, [])


def test_an_episode_goes_on_in_the_next_part_of_a_table(cfmon: Run, tmp_path: Path) -> None:
    count = range(30)
    columns = {"episode": [n // 7 for n in count], "state": [n % 5 for n in count], "action": [n % 2 for n in count]}
    rows = pa.table(columns)
    folder = tmp_path / "data"
    folder.mkdir()
    for part in range(3):
        parquet.write_table(rows.slice(10 * part, 10), folder / f"train-0000{part}-of-00003.parquet")
    parquet.write_table(rows, tmp_path / "whole.parquet")
    said = [
        json.loads(cfmon("model", "learn", str(source), "-o", str(tmp_path / f"{n}.npz"), "--json")[1])
        for n, source in enumerate((folder, tmp_path / "whole.parquet"))
    ]
    assert said[0]["sha256"] == said[1]["sha256"]
    assert said[0]["transitions counted"] == 25
    assert said[0]["episodes"] == said[1]["episodes"] == 5
