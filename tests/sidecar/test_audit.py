"""An audit gives what one process published, to the byte, however it is divided, stopped and resumed."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from monitor.audit import schedule
from monitor.audit.gaps import find_gaps
from monitor.audit.partition import ALERTS, run_partition
from monitor.audit.plan import DONE, Partition, days_of, opened, partitions
from monitor.audit.results import findings
from monitor.audit.schedule import run_all
from monitor.errors import ConfigError, RecordingError
from monitor.sidecar import parquet_recorder
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Message
from monitor.sidecar.recording_columns import ALL
from monitor.types import Instant, TakenOver
from tests.sidecar.audited import DAY, START, events, recorded, replayed, world
from tests.tiers import examples, scaled

Plan = Mapping[int, Sequence[Partition]]


def plan_of(config: Path, recordings: Sequence[Path], out: Path, *, in_order: bool = False) -> Plan:
    loaded = assemble(config, {})
    days = days_of(opened(recordings, loaded), loaded)
    return partitions(days, loaded, config, out, in_order=in_order)


def alerts(plan: Plan) -> list[str]:
    """All lines that an audit wrote, bucket by bucket."""
    files = [Path(part.folder) / ALERTS for parts in plan.values() for part in parts]
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines(keepends=True)]


def run(plan: Plan) -> list[int]:
    done: list[int] = []
    run_all(plan, done.append)
    return done


def by_agent(lines: Sequence[str]) -> dict[str, list[str]]:
    """Agent -> its alerts in order: across agents, the order is that of the buckets."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(json.loads(line)["topic"].split("/")[-2], []).append(line)
    return found


@scaled
@pytest.mark.parametrize("batch", [1, 5])
def test_an_audit_gives_what_one_process_published_to_the_byte(tmp_path: Path, batch: int) -> None:
    config, many = world(tmp_path), events(steps=examples(50, 400), batch=batch)
    expected = replayed(config, many)
    plan = plan_of(config, [recorded(tmp_path / "r.parquet", many)], tmp_path / "out")
    run(plan)
    assert len(plan) > 5
    assert {len(parts) for parts in plan.values()} == {4}
    assert by_agent(alerts(plan)) == by_agent(expected)
    assert len(expected) > 100
    assert findings(plan).limited == 0


def test_steps_that_wait_where_a_part_of_the_recording_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of an agent that sends nothing in the next part."""
    monkeypatch.setattr(parquet_recorder, "PART", 89)
    never_fires = 'P>=0.0 [ G<=1 !"lost" ]'
    config = world(tmp_path, f"  - {{name: safe, formula: '{never_fires}'}}\n")
    many: list[Event] = []
    for n in range(300):
        now = Instant(START + n / 10, n / 10)
        for agent in ("a0", "a1", "a2") if n < 125 else ("a1", "a2"):
            step = {"v": 1, "episode": "e", "seq": n, "state": 5, "action": 0, "time": now.wall}
            many.append(Message(now, f"agents/{agent}/steps", msgspec.msgpack.encode(step)))
        many.append(Evaluate(now, steps=1000) if n % 60 == 0 else Heartbeat(now))
    many.append(Evaluate(Instant(START + 100.0, 100.0)))  # all are silent by now
    expected = replayed(config, many)
    plan = plan_of(config, [recorded(tmp_path / "r.parquet", many)], tmp_path / "out")
    run(plan)
    assert by_agent(alerts(plan)) == by_agent(expected)
    counts = [json.loads((Path(part.folder) / DONE).read_text()) for parts in plan.values() for part in parts]
    assert sum(count.get("accepted", 0) for count in counts) == 725
    assert sum(count.get("verdicts", 0) for count in counts) == 725


@scaled
def test_takeovers_are_judged_as_one_process_judges_them(tmp_path: Path) -> None:
    config = world(tmp_path)
    careful = json.loads((tmp_path / "careful.yaml").read_text())["sha256"]
    many = events(steps=examples(50, 150), taking_over=careful)
    pipeline = assemble(config, {}).pipeline("one")
    notices = [notice for event in many for notice in pipeline.step(event).notices if isinstance(notice, TakenOver)]
    expected = Counter((notice.formula, notice.policy, notice.outcome) for notice in notices)
    plan = plan_of(config, [recorded(tmp_path / "r.parquet", many)], tmp_path / "out")
    run(plan)
    assert findings(plan).takeovers == expected
    assert {"needed", "needless"} <= {outcome for _, _, outcome in expected}
    assert by_agent(alerts(plan)) == by_agent(replayed(config, many))


@scaled
def test_in_the_order_of_one_process_even_the_order_is_the_same(tmp_path: Path) -> None:
    config, many = world(tmp_path), events(steps=examples(100, 400), batch=40, budget=3)
    plan = plan_of(config, [recorded(tmp_path / "r.parquet", many)], tmp_path / "out", in_order=True)
    run(plan)
    assert list(plan) == [ALL]
    assert alerts(plan) == replayed(config, many)


def test_evaluations_that_used_up_their_steps_are_counted_if_one_process_left_steps(tmp_path: Path) -> None:
    config = world(tmp_path)
    for budget in (3, 200):
        many = events(steps=60, batch=40, budget=budget)
        pipeline, left = assemble(config, {}).pipeline("one"), 0
        for event in many:
            pipeline.step(event)
            left += isinstance(event, Evaluate) and pipeline.waiting.steps > 0
        recording = recorded(tmp_path / f"{budget}.parquet", many)
        plan = plan_of(config, [recording], tmp_path / f"out-{budget}")
        run(plan)
        assert (findings(plan).limited > 0) == (left > 0) == (budget == 3)


def test_a_stopped_audit_goes_on_and_what_is_there_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, many = world(tmp_path), events(steps=30)
    recording = recorded(tmp_path / "r.parquet", many)
    plan = plan_of(config, [recording], tmp_path / "out")
    total = sum(map(len, plan.values()))
    computed: list[str] = []

    def stopping(part: Partition) -> str:
        computed.append(part.name)
        if len(computed) == 7:
            raise KeyboardInterrupt
        return run_partition(part)

    monkeypatch.setattr(schedule, "run_partition", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(plan)
    first = list(computed)
    assert run(plan) == list(range(6, total + 1))
    assert computed[7:].count(first[-1]) == 1
    assert not set(first[:-1]) & set(computed[7:])
    assert by_agent(alerts(plan)) == by_agent(replayed(config, many))
    assert run(plan) == [total]


def test_a_day_that_was_recorded_further_is_computed_again_with_all_that_follow(tmp_path: Path) -> None:
    config, many = world(tmp_path), events(steps=40)
    cut = len(many) // 2
    recording = recorded(tmp_path / "r.parquet", many[:cut])
    before = plan_of(config, [recording], tmp_path / "out")
    run(before)
    shutil.rmtree(recording)
    recorded(recording, many)
    plan = plan_of(config, [recording], tmp_path / "out")
    run(plan)
    assert by_agent(alerts(plan)) == by_agent(replayed(config, many))


def test_another_configuration_computes_everything_again(tmp_path: Path) -> None:
    config, many = world(tmp_path), events(steps=10)
    recording = recorded(tmp_path / "r.parquet", many)
    run(plan_of(config, [recording], tmp_path / "out"))
    other = world(tmp_path / "other", "  - name: watch\n    formula: 'P>=0.9 [ G<=2 !\"lost\" ]'\n")
    assert not any(part.done for parts in plan_of(other, [recording], tmp_path / "out").values() for part in parts)


def test_recordings_continue_each_other_as_a_restarted_monitor_does(tmp_path: Path) -> None:
    many = events(steps=40)
    cut = len(many) // 2
    pair = [recorded(tmp_path / "1.parquet", many[:cut]), recorded(tmp_path / "2.parquet", many[cut:])]
    kept = world(tmp_path / "kept")
    plan = plan_of(kept, pair, tmp_path / "out")
    run(plan)
    assert by_agent(alerts(plan)) == by_agent(replayed(kept, many))
    bare = world(tmp_path / "bare")
    bare.write_text(bare.read_text().replace("var/cfmon.sqlite", "null"))
    plan = plan_of(bare, pair, tmp_path / "out-bare")
    run(plan)
    assert by_agent(alerts(plan)) == by_agent([*replayed(bare, many[:cut]), *replayed(bare, many[cut:])])


def test_a_clock_that_goes_back_over_midnight_changes_nothing(tmp_path: Path) -> None:
    config = world(tmp_path)
    many: list[Event] = []
    for event in events(steps=60, agents=3):
        back = DAY if 1.2 * DAY < event.now.ticks < 1.4 * DAY else 0.0
        now = Instant(event.now.wall - back, event.now.ticks)
        many.append(type(event)(now, *[getattr(event, name) for name in event.__struct_fields__[1:]]))
    plan = plan_of(config, [recorded(tmp_path / "r.parquet", many)], tmp_path / "out")
    run(plan)
    assert any("~2" in part.day for parts in plan.values() for part in parts)
    assert by_agent(alerts(plan)) == by_agent(replayed(config, many))


def test_gaps_are_found_by_sequence_numbers_and_dates(tmp_path: Path) -> None:
    def step(agent: str, episode: int, seq: int, day: float) -> Message:
        payload = {"v": 1, "episode": episode, "seq": seq, "state": 0, "action": 0}
        return Message(Instant(day * DAY, day * DAY), f"agents/{agent}/steps", json.dumps(payload).encode())

    present = [(0, 0), (1, 0), (3, 0.5), (4, 0.5), (8, 1.0), (8, 1.0), (9, 1.0), (12, 4.0)]
    many: list[Event] = [Connected(Instant(0.0, 0.0), up=True), step("bob", 1, 50, 0.0)]
    many += [step("ada", 1, seq, day) for seq, day in present]
    many += [step("bob", 2, 2, 4.0), Message(Instant(4 * DAY, 4 * DAY), "agents/bob/steps", b"?")]
    config = world(tmp_path)
    loaded = assemble(config, {})
    gaps = find_gaps(days_of(opened([recorded(tmp_path / "r.parquet", many)], loaded), loaded))
    assert gaps.missing == {("ada", "1970-01-01"): 1, ("ada", "1970-01-02"): 3, ("ada", "1970-01-05"): 2}
    assert gaps.cut == {("bob", "1970-01-05"): 1}
    assert gaps.days == ["1970-01-03", "1970-01-04"]
    assert (gaps.agents, gaps.steps, gaps.invalid, gaps.lost) == (2, 10, 1, 0)
    assert gaps.lines()[0] == "6 steps of 1 agents are missing within episodes"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    config = world(tmp_path)
    with pytest.raises(RecordingError, match="no such folder"):
        plan_of(config, [tmp_path / "absent"], tmp_path / "out")
    with pytest.raises(RecordingError, match="cfmon recording convert"):
        plan_of(config, [config], tmp_path / "out")
    with pytest.raises(RecordingError, match="no complete part yet"):
        plan_of(config, [recorded(tmp_path / "empty.parquet", [])], tmp_path / "out")
    recording = recorded(tmp_path / "r.parquet", events(steps=5))
    config.write_text(config.read_text().replace('1:1"}', '1:1", steps: "robots/+/steps"}'))
    with pytest.raises(ConfigError, match=r"mqtt\.steps is robots"):
        plan_of(config, [recording], tmp_path / "out")


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1"])
def test_a_scheduler_that_cannot_be_reached_is_one_error(tmp_path: Path, address: str) -> None:
    pytest.importorskip("distributed")
    import dask  # noqa: PLC0415 - an extra

    plan = plan_of(world(tmp_path), [recorded(tmp_path / "r.parquet", events(steps=5))], tmp_path / "out")
    soon = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    with soon, pytest.raises(ConfigError, match=f"the scheduler {address} cannot be reached"):
        run_all(plan, lambda _done: None, scheduler=address)


def test_several_workers_without_dask_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(world(tmp_path), [recorded(tmp_path / "r.parquet", events(steps=5))], tmp_path / "out")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match="use --workers 1"):
        run_all(plan, lambda _done: None, workers=2)


def test_parquet_without_pyarrow_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecordingError, match=r"pip install '\.\[learn\]'"):
        recorded(tmp_path / "r.parquet", [])
    assert not (tmp_path / "r.parquet").exists()


def test_a_missing_file_of_evaluations_is_noticed(tmp_path: Path) -> None:
    config = world(tmp_path)
    recording = recorded(tmp_path / "r.parquet", events(steps=20))
    next(recording.glob("date=*/bucket=all/*")).unlink()
    with pytest.raises(RecordingError, match=r"evaluations of .* are missing"):
        run(plan_of(config, [recording], tmp_path / "out"))


def test_the_start_of_the_world_is_in_the_recording(tmp_path: Path) -> None:
    """The other tests mean something only if something happens on each day."""
    many = events(steps=100)
    assert {int((event.now.wall - START) // DAY) for event in many} == {0, 1, 2, 3}
    lines = replayed(world(tmp_path), many)
    states = {json.loads(line)["payload"]["state"] for line in lines if not line.endswith("null}\n")}
    assert {"firing", "resolved", "ended"} <= states
