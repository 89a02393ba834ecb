"""The job on Flink without Flink: its lines, its state, its messages, its metrics, and the files beside it."""

from __future__ import annotations

import doctest
import json
import math
import os
import random
import re
import tomllib
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import sizing
import supervise
import yaml
from cfmon_flink import arrival as arrival_module
from cfmon_flink.arrival import LATEST, NOBODY, Arrival, read_line, read_lines, received_on, tick_line, write_line
from cfmon_flink.bucket import SEPARATOR, Bucket
from cfmon_flink.keyed import EVERY, KeyedAgent, Noticed, Saved, next_tick
from cfmon_flink.messages import document_of, messages, split_message
from cfmon_flink.scraped import Scraped, Server, server_of_process
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.errors import InputError
from monitor.evaluation import check
from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.types import Alert, Blind, Forgotten, FormulaSpec, Instant, Received, StreamSettings
from tests.faults.world import agent_steps, number_steps, write_numbers, write_world
from tests.tiers import examples, first, slow

START: Final = 1_795_259_763_700
FLINK: Final = Path(__file__).parents[2] / "deploy" / "flink"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    stream = {"max_lag": "30m", "stale_after": "5s", "forget_after": "60s"}
    folder = tmp_path_factory.mktemp("flink")
    return assemble(write_world(folder, "mqtt://127.0.0.1:1", store={"path": None}, stream=stream), {})


def log(seed: int, count: int, agents: Collection[str] = ("a0",), plant: Path | None = None) -> list[str]:
    """Return lines of some agents, with duplicates, losses, swapped lines, ticks and silence.

    `plant`: the folder of one, whose agents they are instead of those on the grid.
    """
    draw, steps = random.Random(seed), agent_steps(seed) if plant is None else number_steps(plant, seed)
    lines: list[str] = []
    now = START
    while len(lines) < count:
        agent, step = next(steps)
        now += draw.choice((10, 10, 10, 10, 10, 700, 9_000)) if draw.random() < 0.1 else 10
        if agent not in agents:
            continue
        line = write_line(agent, now, json.dumps(step).encode())
        match draw.randrange(40):
            case 0:
                lines += [line, line]
            case 1:
                pass
            case 2 if lines:
                lines.insert(-1, line)
            case 3:
                lines += [line, tick_line(agent, now)]
            case _:
                lines.append(line)
    return lines


def batches(seed: int, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines in batches of random lengths."""
    draw, begin = random.Random(seed), 0
    while begin < len(lines):
        end = begin + draw.randint(1, 30)
        yield SEPARATOR.join(lines[begin:end])
        begin = end


def sent(loaded: Loaded, noticed: Sequence[Noticed]) -> list[str]:
    return list(messages(noticed, loaded.identity, "cfmon/alerts", [each.name for each in loaded.formulas]))


class Kept:
    """What Flink keeps of a bucket, and a process that may lose its memory after any batch."""

    def __init__(self, monitor: Monitor, every: int = EVERY) -> None:
        self._monitor, self._every = monitor, every
        self.saved: dict[str, Saved] = {}
        self.pages: dict[tuple[str, int], bytes] = {}
        self.batches: list[str] = []
        self._live: Bucket | None = None

    @property
    def bucket(self) -> Bucket:
        if self._live is None:
            self._live = Bucket(self._monitor, self.saved, self.pages, self.batches, every=self._every)
        return self._live

    def take(self, batch: str) -> list[Noticed]:
        noticed = [*self.bucket.restored, *self.bucket.take(batch)]
        if self.bucket.full or self.bucket.restored:
            changes = self.bucket.save()
            for name in changes.agents_gone:
                self.saved.pop(name, None)
            for page in changes.pages_gone:
                self.pages.pop(page, None)
            self.saved |= changes.agents
            self.pages |= changes.pages
            self.batches = []
        else:
            self.batches.append(batch)
        return noticed

    def pass_time(self, until: int) -> list[Noticed]:
        noticed: list[Noticed] = []
        while ticks := self.bucket.ticks(until):
            noticed += self.take(ticks)
        return noticed

    def die(self) -> None:
        self._live = None


class Loop:
    """The agents without buckets, batches, timers or deaths."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._agents: dict[str, KeyedAgent] = {}

    def take(self, line: str) -> list[Noticed]:
        arrival = read_line(line)
        if arrival.agent not in self._agents:
            self._agents[arrival.agent] = KeyedAgent(self._monitor, arrival.agent)
        return self._agents[arrival.agent].take(arrival)

    def end(self) -> list[Noticed]:
        """Let time pass until all agents are forgotten."""
        found: list[Noticed] = []
        for name, agent in self._agents.items():
            while agent.due is not None:
                found += agent.take(Arrival(name, agent.due))
        return found


SLOW: Final = settings(
    max_examples=examples(2, 12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@SLOW
@given(st.integers(0, 2**32), st.integers(1, 40), st.sets(st.integers(0, 19), max_size=6))
def test_a_process_that_dies_after_any_batch_sends_what_one_that_lives_sends(
    loaded: Loaded, seed: int, every: int, deaths: set[int]
) -> None:
    lives, dies = Loop(loaded.monitor), Kept(loaded.monitor, every)
    for number, batch in enumerate(batches(seed, log(seed, 300, ("a0", "a1", "a2")))):
        expected = [each for line in batch.split(SEPARATOR) for each in lives.take(line)]
        assert sent(loaded, dies.take(batch)) == sent(loaded, expected)
        if number in deaths:
            dies.die()


@SLOW
@given(st.integers(0, 2**32), st.sets(st.integers(0, 19), max_size=6))
def test_timers_between_batches_change_no_message_and_leave_no_state(
    loaded: Loaded, seed: int, deaths: set[int]
) -> None:
    """No line is late for the timers; agent a1 is forgotten, and returns."""
    lines = [
        line
        for line in log(seed, 400, ("a0", "a1"))
        if read_line(line).agent == "a0" or not 20_000 < read_line(line).received - START < 100_000
    ]
    loop, kept = Loop(loaded.monitor), Kept(loaded.monitor, 8)
    expected = sent(loaded, [*(each for line in lines for each in loop.take(line)), *loop.end()])
    found: list[str] = []
    left = [read_line(line).received for line in lines]
    for number, batch in enumerate(batches(seed, lines)):
        found += sent(loaded, kept.take(batch))
        del left[: batch.count(SEPARATOR) + 1]
        found += sent(loaded, kept.pass_time(min(left, default=START + 10**9) - 1))
        if number in deaths:
            kept.die()
    assert sorted(found) == sorted(expected)
    assert (kept.saved, kept.pages, kept.batches, kept.bucket.due) == ({}, {}, [], None)


@slow
def test_numbers_as_states_survive_deaths_and_are_those_of_check(tmp_path: Path) -> None:
    """Evidence is not kept in a job: one alarm is compared with `check` on the same path instead."""
    loaded = assemble(write_numbers(tmp_path, "mqtt://127.0.0.1:1", store={"path": None}), {})
    lives, dies = Loop(loaded.monitor), Kept(loaded.monitor, 5)
    alerts: list[Alert] = []
    for number, batch in enumerate(batches(3, log(3, 240, ("a0", "a1"), tmp_path))):
        noticed = [each for line in batch.split(SEPARATOR) for each in lives.take(line)]
        assert sent(loaded, dies.take(batch)) == sent(loaded, noticed)
        alerts += [notice for _, notices in noticed for notice in notices if isinstance(notice, Alert)]
        if number % 2:
            dies.die()
    alert = next(each for each in alerts if each.formula == "watch" and each.verdict.drawn)
    path = [(state, action, w) for (state, action), w in zip(alert.path, alert.inputs, strict=True)]
    again = check(
        alert.text, model=loaded.model, path=path, policies=loaded.tables, drawn=alert.verdict.drawn, recourse=False
    )
    assert again.outcome == alert.verdict.outcome
    assert [each.value for each in again.quantities] == [each.value for each in alert.verdict.quantities]


def test_a_long_life_with_thousands_of_episodes_survives_deaths_and_oblivion(loaded: Loaded) -> None:
    """So many episodes that there are pages, which are kept beside the bytes."""
    lives, dies = Loop(loaded.monitor), Kept(loaded.monitor)
    for number in range(1500):
        step = {"v": 1, "episode": number, "seq": 0, "state": number % 4, "action": 1, "terminated": True}
        line = write_line("a0", START + 100 * number, json.dumps(step).encode())
        assert sent(loaded, dies.take(line)) == sent(loaded, lives.take(line))
        if number % 100 == 50:
            dies.die()
    assert dies.pages.keys() == {("a0", 0), ("a0", 1)}
    assert sent(loaded, dies.pass_time(START + 10**9)) == sent(loaded, lives.end())
    assert (dies.saved, dies.pages, dies.batches) == ({}, {}, [])


def test_notices_about_changed_formulas_come_once(loaded: Loaded, tmp_path: Path) -> None:
    kept = Kept(loaded.monitor, 10**6)
    lines = log(2, 400, ("a0", "a1"))
    kept.take(SEPARATOR.join(lines[:300]))
    kept.saved = kept.bucket.save().agents
    kept.batches = []
    [formula] = [{"name": "other", "formula": 'fallback@3.P>=0.5 [ G<=4 !"unsafe" ]'}]
    changed = assemble(write_world(tmp_path, "mqtt://127.0.0.1:1", store={"path": None}, formulas=[formula]), {})
    again = Kept(changed.monitor, 10**6)
    again.saved = kept.saved
    removed = sent(changed, again.bucket.restored)
    assert removed
    assert sent(changed, again.take(lines[300]))[: len(removed)] == removed
    for _ in range(2):
        assert again.bucket.restored == []
        again.die()


def test_lines_of_nonsense_in_a_batch_are_refused_one_by_one(loaded: Loaded) -> None:
    line = log(1, 1)[0]
    noticed = Bucket(loaded.monitor).take(SEPARATOR.join(["", line, "{}", '{"agent": "a/b", "received": 1}']))
    refused = [each.reason for _, notices in noticed for each in notices if isinstance(each, Received)]
    assert refused == ["bad_line", *[""] * refused.count(""), "bad_line", "bad_agent"]
    assert [each.agent for _, notices in noticed for each in notices if isinstance(each, Received)].count(NOBODY) == 3


@SLOW
@given(st.integers(0, 2**32))
def test_a_batch_leads_to_what_its_lines_lead_to_one_by_one(loaded: Loaded, seed: int) -> None:
    """Also with lines of nonsense among them, because of which none of the batch are read together."""
    draw = random.Random(seed)
    together, alone = Bucket(loaded.monitor), Bucket(loaded.monitor)
    lines = log(seed, 400, ("a0", "a1", "a2", "a3"))
    odd = ["", "{}", '{"agent": "a/b", "received": 1}', tick_line("a9", START)]
    for whole in batches(seed, lines):
        batch = SEPARATOR.join([whole, draw.choice(odd)] if draw.random() < 0.1 else [whole])
        expected = [each for line in batch.split(SEPARATOR) for each in alone.take(line)]
        assert sent(loaded, together.take(batch)) == sent(loaded, expected)
        assert together.due == alone.due
        match draw.randrange(10):
            case 0:
                assert together.save() == alone.save()
            case 1:
                assert [*together.current()] == [*alone.current()]
            case 2:
                until = read_line(lines[-1]).received if draw.random() < 0.1 else START
                assert together.ticks(until) == alone.ticks(until)
            case _:
                pass
    assert together.save() == alone.save()


@SLOW
@given(st.integers(0, 2**32))
def test_it_makes_no_difference_whether_timers_fire_before_a_later_line(loaded: Loaded, seed: int) -> None:
    prompt, lazy = KeyedAgent(loaded.monitor, "a0"), KeyedAgent(loaded.monitor, "a0")
    early: list[str] = []
    late: list[str] = []
    for line in log(seed, 300):
        arrival = read_line(line)
        while prompt.due is not None and prompt.lines > 0 and prompt.due <= arrival.received:
            early += sent(loaded, prompt.take(Arrival("a0", prompt.due)))
            if prompt.due is not None and prompt.due >= arrival.received:
                break
        early += sent(loaded, prompt.take(arrival))
        late += sent(loaded, lazy.take(arrival))
    assert early == late
    assert late


def test_a_silent_agent_goes_blind_by_timers_alone_and_is_forgotten(loaded: Loaded) -> None:
    agent = KeyedAgent(loaded.monitor, "a0")
    agent.take(read_line(log(1, 1)[0]))
    noticed: list[Noticed] = []
    times: list[int] = []
    while agent.due is not None:
        times.append(agent.due)
        noticed += agent.take(Arrival("a0", agent.due))
    assert times == sorted(set(times))
    notices = [notice for _, each in noticed for notice in each]
    assert any(isinstance(notice, Blind) and notice.reason == "stale" for notice in notices)
    assert isinstance(notices[-1], Forgotten)
    assert sent(loaded, noticed)[-1].endswith("\t")


@pytest.mark.parametrize("seed", first(6, range(30)))
def test_a_tick_at_the_time_when_something_is_due_does_it(seed: int) -> None:
    """Otherwise a timer would tick without end."""
    draw = random.Random(seed)
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"bad": [0]})
    stale_after, reorder_wait = draw.randrange(1_000, 9_000, 4) / 1000, draw.randrange(100, 9_000) / 1000
    if seed % 3 == 0:  # no whole milliseconds, or less than the clock can tell
        stale_after, reorder_wait = draw.choice([draw.uniform(0.5, 9.0), 1e-9]), draw.uniform(0.1, 9.0)
    forget_after = 60.0 if stale_after > 0.1 else 0.05
    times = StreamSettings(stale_after=stale_after, forget_after=forget_after, reorder_wait=reorder_wait)
    formula = FormulaSpec("watch", 'P>=0.9 [ G<=3 !"bad" ]', every=draw.choice([1, 1.0]))
    bucket = Bucket(Monitor(model, {"nominal": [0]}, [formula], times))
    begin = draw.choice([START + draw.randrange(10**9), draw.randrange(10**6)])
    steps = [{"v": 1, "episode": 0, "seq": seq, "state": 0, "action": 0} for seq in (0, 2)]
    bucket.take(SEPARATOR.join(write_line("a0", begin, json.dumps(step).encode()) for step in steps))
    before = begin
    while (agent := bucket.agents.get("a0")) is not None:
        assert agent.due is not None
        assert agent.due > before
        before = agent.due
        bucket.take(bucket.ticks(before))


@given(st.floats(0.0, 2.0e9), st.integers(0, 2 * 10**12), st.sampled_from([0.0, 1e-9, 1e-3, 0.9, 1.0, 1e300]))
def test_a_tick_is_after_the_last_line_and_not_before_it_is_due(due: float, now: int, more: float) -> None:
    for at in (due, now / 1000.0 + more, -math.inf, math.inf):
        found = next_tick(at, now / 1000.0)
        assert found > now
        assert found / 1000.0 >= at or found == LATEST
        assert (found - 2) / 1000.0 < at or found - 1 <= now, "not later than needed, but for rounding"


def test_an_agent_that_is_never_stale_nor_forgotten_is_never_due() -> None:
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], labels={"bad": [0]})
    times = StreamSettings(stale_after=math.inf, forget_after=math.inf)
    bucket = Bucket(Monitor(model, {"nominal": [0]}, ['P>=0.9 [ G<=3 !"bad" ]'], times))
    bucket.take(write_line("a0", START, b'{"v": 1, "episode": 0, "seq": 0, "state": 0, "action": 0}'))
    assert bucket.agents["a0"].due == LATEST
    assert bucket.ticks(LATEST) == ""


def test_time_does_not_go_back(loaded: Loaded) -> None:
    agent = KeyedAgent(loaded.monitor, "a0")
    first, second = (read_line(line) for line in log(1, 2))
    [(now, _)] = agent.take(first)
    [*_, (again, _)] = agent.take(Arrival("a0", first.received - 5000, second.payload))
    assert again == now == Instant(START / 1000 + (first.received - START) / 1000, first.received / 1000)


def test_a_message_has_the_time_of_its_line_and_splits_into_topic_and_document(loaded: Loaded) -> None:
    agent = KeyedAgent(loaded.monitor, "a0")
    for line in log(2, 400):
        for message in sent(loaded, agent.take(read_line(line))):
            topic, payload = split_message(message)
            if payload:
                document = json.loads(payload)
                assert document_of(message).encode() == payload
                assert topic == f"cfmon/alerts/a0/{document['formula']['name']}"
                assert document["sent_unix"] <= read_line(line).received / 1000
                return
    pytest.fail("no alert: the test shows nothing")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "bad_line"),
        ("{}", "bad_line"),
        ("\ud800", "bad_line"),
        ('{"agent": "a", "received": "now"}', "bad_line"),
        (f'{{"agent": "a", "received": 1, "more": {"[" * 100_000}{"]" * 100_000}}}', "bad_line"),
        ('{"agent": "a", "received": -1}', "bad_line"),
        ('{"agent": "a", "received": 253402300800000}', "bad_line"),
        (f'{{"agent": "a", "received": {"9" * 400}}}', "bad_line"),
        ('{"agent": "a", "received": 1, "payload": "no base64!"}', "bad_line"),
        ('{"agent": "a/b", "received": 1}', "bad_agent"),
        ('{"agent": "", "received": 1}', "bad_agent"),
    ],
)
def test_a_line_that_is_none_is_refused_with_a_reason(line: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        read_line(line)
    assert refused.value.reason == reason


def test_time_passes_for_nobody_beyond_the_last_time_of_a_line(loaded: Loaded) -> None:
    """A source that ends lets all time pass. An agent that sent a time close to the end is due after it."""
    bucket = Bucket(loaded.monitor)
    for agent, received in (("a0", START), ("a1", LATEST - 1)):
        bucket.take(write_line(agent, received, json.dumps(next(agent_steps(1))[1]).encode()))
    turns = 0
    while ticks := bucket.ticks(2**62):
        bucket.take(ticks)
        turns += 1
    assert turns < 50
    assert bucket.agents.keys() == {"a1"}


GOOD: Final = '{"agent": "a", "received": 1}'


@pytest.mark.parametrize(
    "lines",
    [
        [GOOD, ""],
        ["", GOOD],
        [GOOD, f" {GOOD}"],
        [GOOD, "[]"],
        [GOOD, f"{GOOD} {GOOD}"],
        [f"{GOOD}\n{GOOD}", ""],
        [f"{GOOD}\n{GOOD}", '{"agent": "b"', '"received": 2}'],
        [f"{GOOD}{GOOD}", '{"agent": "b", "received": 2, "other": {}', '{"x": 1}}'],
        [GOOD, '{"agent": "a", "received": 1, "payload": "no base64!"}'],
        [GOOD, '{"agent": "a", "received": -1}'],
        [GOOD, f'{{"agent": "a", "received": 1, "more": {"[" * 100_000}{"]" * 100_000}}}'],
        [GOOD, '{"agent": "a\ud800", "received": 1}'],
    ],
)
def test_lines_that_are_not_one_value_each_are_read_one_by_one(lines: list[str]) -> None:
    assert read_lines(SEPARATOR.join(lines), SEPARATOR) is None


def test_lines_are_read_together_as_one_by_one() -> None:
    lines = [GOOD, '{"payload": "e30=", "agent": "b", "received": 5, "more": [{}, "}{"]}', "{ " + GOOD[1:]]
    assert read_lines(SEPARATOR.join(lines), SEPARATOR) == [read_line(line) for line in lines]
    assert read_lines(GOOD, SEPARATOR) == [read_line(GOOD)]


def test_a_line_has_a_time_whatever_it_is() -> None:
    assert received_on(write_line("ada", START, b"{}"), 0) == START
    odd = ["", "\ud800", '{"received": 1.5}', f'{{"received": {"9" * 30}}}', '{"received": -1}']
    assert [received_on(each, 7) for each in odd] == [7] * len(odd)
    assert doctest.testmod(arrival_module).failed == 0


def test_java_and_python_agree_on_the_separator() -> None:
    """Java is run on a cluster only, by tests/faults/test_flink.py."""
    for name in ("Keys", "Batches"):
        source = (FLINK / "cfmon_flink" / f"{name}.java").read_text()
        assert f"'\\u{ord(SEPARATOR):04x}'" in source


def scrape(server: Server, path: str = "metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}") as answer:
        return str(answer.read().decode())


def test_a_subtask_that_follows_another_in_the_process_has_its_port_and_another_process_the_next(
    loaded: Loaded,
) -> None:
    """Flink does not close the function of a subtask that failed."""
    with closing(Server("127.0.0.1", 0)) as first, closing(Server("127.0.0.1", first.port)) as second:
        assert first.port < second.port < first.port + 100
        failed = Scraped(loaded.watched, first)
        follower = Scraped(loaded.watched, first)
        failed.close()
        assert "cfmon_messages_total" in scrape(first)
        follower.close()
    with closing(server_of_process("127.0.0.1", first.port)) as server:
        assert server_of_process("127.0.0.1", first.port) is server


def test_metrics_have_the_names_and_labels_of_the_sidecar(loaded: Loaded) -> None:
    agent = KeyedAgent(loaded.monitor, "a0")
    noticed = [each for line in log(1, 100) for each in agent.take(read_line(line))]
    with closing(Server("127.0.0.1", 0)) as server:
        scraped = Scraped(loaded.watched, server)
        scraped.take(noticed)
        text = scrape(server)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scrape(server, "")
        scraped.close()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            scrape(server)
    assert 'cfmon_messages_total{result="accepted"}' in text
    assert 'cfmon_alarm_state{agent="a0",formula="tally"' in text


def test_after_a_restart_metrics_show_the_state_and_count_nothing_again(loaded: Loaded) -> None:
    agent = KeyedAgent(loaded.monitor, "a0")
    for line in log(1, 100):
        agent.take(read_line(line))
    with closing(Server("127.0.0.1", 0)) as server:
        Scraped(loaded.watched, server).recall(agent.current())
        text = scrape(server)
    assert 'cfmon_alarm_state{agent="a0",formula="tally"' in text
    assert 'cfmon_messages_total{result="accepted"} 0.0' in text


def flat(settings_: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings_.items():
        yield from flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]


def test_flink_listens_on_loopback_only_and_keeps_each_state_once() -> None:
    config = dict(flat(yaml.safe_load((FLINK / "conf" / "config.yaml").read_text())))
    hosts = {
        key: value for key, value in config.items() if key.endswith(("bind-host", "bind-address", ".host", ".address"))
    }
    assert set(hosts.values()) == {"localhost"}
    assert {"jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address"} <= hosts.keys()
    assert config["python.execution-mode"] == "thread"
    assert config["state.backend.type"] == "rocksdb"
    assert config["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert config["taskmanager.numberOfTaskSlots"] == 1


def test_telegraf_writes_lines_of_the_job_keyed_by_agent() -> None:
    """The file is TOML; Telegraf itself is not run, so its output is written down here as its documentation has it."""
    config = tomllib.loads((FLINK / "telegraf.conf").read_text())
    [source], [target] = config["inputs"]["mqtt_consumer"], config["outputs"]["kafka"]
    [parsing] = source["topic_parsing"]
    assert source["topics"] == [parsing["topic"]]
    levels, tags = parsing["topic"].split("/"), parsing["tags"].split("/")
    assert dict(zip(tags, levels, strict=True))["agent"] == "+"
    assert (source["qos"], source["persistent_session"], source["data_type"]) == (1, True, "base64")
    assert (target["routing_tag"], target["json_timestamp_units"]) == ("agent", "1ms")
    names = {"tags.agent": "ada", "timestamp": START, "fields.value": b64encode(b"{}").decode()}
    line = target["json_transformation"]
    for name, value in names.items():
        line = line.replace(name, json.dumps(value))
    assert read_line(line) == Arrival("ada", START, b"{}")
    assert read_lines(SEPARATOR.join([f"{line}\n"] * 3), SEPARATOR) == [Arrival("ada", START, b"{}")] * 3  # its own \n


def test_emqx_writes_lines_of_the_job_keyed_by_agent() -> None:
    """JSON is HOCON; EMQX itself is not run."""
    config = json.loads((FLINK / "emqx.conf").read_text())
    [rule] = config["rule_engine"]["rules"].values()
    assert 'FROM "agents/+/steps"' in rule["sql"]
    [action] = config["actions"]["kafka_producer"].values()
    message = action["parameters"]["message"]
    assert message["key"] == "${agent}"
    assert action["parameters"]["partition_strategy"] == "key_dispatch"
    assert action["connector"] in config["connectors"]["kafka_producer"]
    line = message["value"]
    for name, value in (("agent", "ada"), ("received", str(START)), ("payload64", b64encode(b"{}").decode())):
        assert f"as {name}" in rule["sql"]
        line = line.replace(f"${{{name}}}", value)
    assert read_line(line) == Arrival("ada", START, b"{}")


@pytest.mark.parametrize(
    ("states", "move"),
    [
        ([], "submit"),
        (["RUNNING"], "wait"),
        (["FAILED", "RESTARTING"], "wait"),
        (["FAILED"], "submit"),
        (["FAILED", "FINISHED"], "end"),
        (["CANCELED"], "end"),
    ],
)
def test_the_supervisor_submits_a_lost_job_and_leaves_others_alone(states: list[str], move: str) -> None:
    jobs = [{"name": "cfmon", "state": state} for state in states]
    assert supervise.next_move([{"name": "another", "state": "RUNNING"}, *jobs]) == move


def test_the_supervisor_begins_with_the_newest_complete_checkpoint(tmp_path: Path) -> None:
    for age, name in enumerate(("new/chk-1", "old/chk-10", "old/chk-9")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "_metadata").touch()
        os.utime(tmp_path / name / "_metadata", (1000 - age, 1000 - age))
    (tmp_path / "new" / "chk-2").mkdir()
    assert [path.name for path in supervise.checkpoints_in(tmp_path)] == ["chk-1", "chk-10", "chk-9"]


def test_the_table_of_needs_is_what_the_model_says() -> None:
    page = (FLINK.parents[1] / "docs" / "flink.md").read_text()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in page.splitlines() if re.match(r"\| 10\^\d", row)]
    assert len(rows) == 5
    for agents, steps, *cells in rows:
        found = sizing.need(10 ** int(agents.removeprefix("10^")), float(steps))
        assert cells == [
            f"{found.managers:,}",
            f"{found.memory / found.managers:.2f}",
            f"{found.bridges:,}",
            f"{found.state:.1f}",
            f"{found.log:.1f}",
            f"{found.restore:.0f}",
        ]
    assert doctest.testmod(sizing).failed == 0


@pytest.mark.parametrize(
    "wrong", [["0"], ["10", "--steps", "-1"], ["10", "--stale-after", "0"], ["10", "--steps", "nan"]]
)
def test_the_model_refuses_a_fleet_that_is_none(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sizing.main(["--agents", *wrong])
    assert "must be positive" in capsys.readouterr().err
    assert sizing.main(["--agents", "10"]) == 0
    assert "1 TaskManagers" in capsys.readouterr().out
