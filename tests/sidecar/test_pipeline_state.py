"""A pipeline's state as bytes: taken up again it has the same future, and what is no state of one is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.alarm.message import Identity
from monitor.errors import InputError
from monitor.model import MDP, load_model, model_sha256
from monitor.policy import PolicyTable, as_table
from monitor.runtime.monitor import Monitor
from monitor.sidecar.effects import Effects, EvidenceFile
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.pipeline import Pipeline, Snapshot, Topics
from monitor.types import AlarmSpec, Alert, Blind, FormulaSpec, Instant, Judged, Sampling, StreamSettings, TakenOver
from tests.sidecar.chaos import DEEDS, Life
from tests.tiers import examples, first

POLICIES = Path(__file__).parents[2] / "policies"
LAW = settings(
    max_examples=examples(10, 40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
SETTINGS = StreamSettings(window=8, reorder_steps=3, forget_after=60.0, max_lag=2.0)

Make = Callable[[], Pipeline]


def proof(about: Alert | TakenOver) -> EvidenceFile:
    """Stands for evidence: the same for the same alert, another for another."""
    content = msgspec.msgpack.encode(about)
    number = about.revision if isinstance(about, Alert) else about.first_seq
    return EvidenceFile(f"{about.formula}-{about.seq}-{number}", content)


def maker(
    model: MDP,
    tables: Mapping[str, PolicyTable],
    formulas: Sequence[FormulaSpec],
    *,
    alerts: str = "cfmon/alerts",
    client_id: str = "test",
) -> Make:
    """Makes pipelines that have seen nothing, all alike."""
    digests = {name: str(abs(hash(table))) for name, table in tables.items()}
    identity = Identity("world", model_sha256(model), digests, {})

    def make() -> Pipeline:
        monitor = Monitor(model, tables, formulas, SETTINGS, identity=identity, sampling=Sampling(limit=200, delta=0.1))
        topics = Topics("agents/+/steps", alerts, "cfmon/status")
        return Pipeline(monitor, identity, topics=topics, client_id=client_id, message_bytes=1000, evidence_of=proof)

    return make


@pytest.fixture(scope="module")
def corridor_make(corridor: MDP, tables: dict[str, PolicyTable]) -> Make:
    goal = 'P>=0.8 [ G<=3 !"lost" ]'
    return maker(
        corridor,
        tables,
        [
            FormulaSpec("watch", f"regret(careful@2, {goal})", causal_model="any", alarm=AlarmSpec(keep=2)),
            FormulaSpec("chance", 'careful@1.P=? [ F<=3 "home" ]', causal_model="any"),
            FormulaSpec("seldom", f"regret(careful@-1, {goal})", every=3, alarm=AlarmSpec(for_=2)),
            FormulaSpec("timed", f"careful@0.{goal}", every=0.5),
            FormulaSpec("drawn", f"regret(careful@1, {goal})", engine="sampled"),
        ],
    )


class Kept:
    """What a store would hold: the newest common state, and every agent's newest."""

    def __init__(self) -> None:
        self.common = b""
        self.agents: dict[str, bytes] = {}

    def put(self, snapshot: Snapshot) -> None:
        self.common = snapshot.common
        for agent, state in snapshot.agents.items():
            if state is None:
                self.agents.pop(agent, None)
            else:
                self.agents[agent] = state


def as_bytes(effects: Effects) -> bytes:
    """Publications, evidence and notices, to the bit; also where a number is NaN."""
    return b"".join(
        type(notice).__name__.encode() + msgspec.msgpack.encode(notice)
        for notice in (*effects.publications, *effects.evidence, *effects.notices)
    )


def check_the_law(make: Make, events: Sequence[Event], kept_at: set[int], killed_at: set[int]) -> None:
    """Snapshots after some events, a new pipeline after some of those: nothing that comes out is another for it."""
    whole, broken, store = make(), make(), Kept()
    for n, event in enumerate(events):
        assert as_bytes(broken.step(event)) == as_bytes(whole.step(event)), f"event {n}: {event}"
        if n in kept_at | killed_at:
            store.put(broken.snapshot())
        if n in killed_at:
            broken = make()
            assert broken.restore(store.common, store.agents) == Effects()
            broken.standing()
    ends = [Kept(), Kept()]  # whoever was forgotten is kept in neither
    for end, pipeline in zip(ends, (broken, whole), strict=True):
        end.put(pipeline.snapshot(everything=True))
    assert (ends[0].common, ends[0].agents) == (ends[1].common, ends[1].agents)


@settings(LAW, max_examples=examples(3, 12))
@given(st.integers(0, 2**32), st.sampled_from([DEEDS, ("step", "step", "evaluate"), ("step", "one", "latest")]))
def test_a_killed_pipeline_has_the_same_future(
    corridor_make: Make, corridor: MDP, seed: int, habits: tuple[str, ...]
) -> None:
    rng = random.Random(seed)
    events = Life(corridor, rng, agents=2).events(rng.choices(habits, k=150))
    kept_at, killed_at = (set(rng.sample(range(len(events)), k)) for k in (30, 8))
    check_the_law(corridor_make, events, kept_at, killed_at)


@pytest.mark.parametrize("seed", first(1, [1, 2]))
@pytest.mark.parametrize(
    ("world", "text"),
    [
        ("frozen-lake", 'regret(other@5, P>=0.8 [ G<=8 !"hole" ])'),
        ("icu-sepsis", 'regret(other@2, P>=0.75 [ G<=20 !"death" ])'),
    ],
)
def test_also_in_worlds_of_size(world: str, text: str, seed: int) -> None:
    model = load_model(POLICIES / world / "model.npz")
    rng = random.Random(seed)
    usual = [[a for a in range(model.actions) if len(model.row(s, a)[0])] for s in range(model.states)]
    tables = {name: as_table([rng.choice(some or [0]) for some in usual], model) for name in ("nominal", "other")}
    make = maker(model, tables, [FormulaSpec("watch", text, causal_model="any", alarm=AlarmSpec(for_=2, keep=2))])
    deeds = rng.choices(DEEDS, k=300)
    check_the_law(make, Life(model, rng).events(deeds), set(range(0, 300, 7)), {100, 200})


@LAW
@given(st.lists(st.sampled_from(["step"] * 9 + ["end", "twice", "evaluate"]), max_size=80), st.integers(0, 2**32))
def test_a_lost_connection_changes_no_alarm(corridor_make: Make, corridor: MDP, deeds: list[str], seed: int) -> None:
    rng = random.Random(seed)
    events = Life(corridor, rng).events([deed for each in deeds for deed in (each, "evaluate")])
    steady, shaken = Listener(corridor_make()), Listener(corridor_make())
    up = True
    for event in events:
        if rng.random() < 0.2:
            up = not up
            shaken.hear(Connected(event.now, up))
        steady.hear(event)
        shaken.hear(event)
    assert shaken.told == steady.told


class Listener:
    """Keeps every verdict, and every alert but those that only tell of blindness."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.told: list[tuple[object, ...]] = []
        self._pipeline = pipeline
        self._last: dict[tuple[str, str], tuple[str, str]] = {}

    def hear(self, event: Event) -> None:
        for notice in self._pipeline.step(event).notices:
            match notice:
                case Judged():
                    self.told.append((notice.agent, notice.formula, notice.seq, notice.verdict))
                case Alert() if self._last.get((notice.agent, notice.formula)) != (notice.id, notice.state):
                    self._last[notice.agent, notice.formula] = (notice.id, notice.state)
                    self.told.append((notice.id, notice.state, notice.since, notice.seq, notice.verdict, notice.path))
                case _:
                    pass


# ---- bytes that are no state, or not the whole of one ----


def lived(make: Make, model: MDP) -> tuple[Pipeline, Snapshot]:
    """A pipeline that has seen something, with its whole state."""
    pipeline = make()
    rng = random.Random(5)
    for event in Life(model, rng).events(rng.choices(["step", "step", "evaluate"], k=60)):
        pipeline.step(event)
    return pipeline, pipeline.snapshot(everything=True)


@pytest.fixture(scope="module")
def life(corridor: MDP, tables: dict[str, PolicyTable]) -> tuple[Make, Snapshot]:
    make = maker(corridor, tables, [FIRST, OTHER])
    return make, lived(make, corridor)[1]


@pytest.fixture(scope="module")
def untouched(life: tuple[Make, Snapshot]) -> Pipeline:
    return life[0]()


@LAW
@given(st.data())
def test_damaged_bytes_are_refused_and_change_nothing(
    life: tuple[Make, Snapshot], untouched: Pipeline, data: st.DataObject
) -> None:
    good, new = life[1], untouched.snapshot(everything=True)
    parts = {"": good.common, **{agent: state for agent, state in good.agents.items() if state is not None}}
    which = data.draw(st.sampled_from(sorted(parts)))
    place = data.draw(st.integers(0, len(parts[which]) - 1))
    if data.draw(st.booleans()):
        parts[which] = parts[which][:place]
    else:
        flipped = parts[which][place] ^ data.draw(st.integers(1, 255))
        parts[which] = parts[which][:place] + bytes([flipped]) + parts[which][place + 1 :]
    with pytest.raises(InputError, match="bad_snapshot"):
        untouched.restore(parts.pop(""), parts)
    assert untouched.snapshot(everything=True) == new


def test_an_agent_that_is_missing_or_another_is_found(life: tuple[Make, Snapshot], untouched: Pipeline) -> None:
    good = life[1]
    for agents in (
        {**good.agents, "a0": None},
        {**good.agents, "a0": good.agents["a1"]},
        {**good.agents, "zoe": good.agents["a0"]},
        {**good.agents, "a0": good.common},
    ):
        with pytest.raises(InputError, match="bad_snapshot"):
            untouched.restore(good.common, agents)


# ---- another configuration ----

GOAL = 'P>=0.8 [ G<=3 !"lost" ]'
FIRST = FormulaSpec("first", f"regret(careful@2, {GOAL})", alarm=AlarmSpec(keep=9))
OTHER = FormulaSpec("other", f"regret(careful@1, {GOAL})", alarm=AlarmSpec(keep=9))
CHANGED = FormulaSpec("other", f"regret(careful@1, {GOAL})", alarm=AlarmSpec(keep=10))


def said(effects: Effects) -> dict[str, list[Any]]:
    """Topic -> what was published there, in order; None where it was cleared."""
    told: dict[str, list[Any]] = {}
    for publication in effects.publications:
        told.setdefault(publication.topic, []).append(json.loads(publication.payload) if publication.payload else None)
    return told


def test_a_changed_formula_is_closed_as_removed_and_the_others_go_on(
    corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    before, after = (maker(corridor, tables, [FIRST, spec]) for spec in (OTHER, CHANGED))
    pipeline, state = lived(before, corridor)
    standing = {p.topic: json.loads(p.payload) for p in pipeline.standing().publications}
    new = after()
    effects = new.restore(state.common, state.agents)
    told = said(effects)
    assert set(told) == {topic for topic in standing if topic.endswith("/other")}, "what is retained, fired or closed"
    assert all(published[-1] is None for published in told.values())
    firing = {topic: alert for topic, alert in standing.items() if alert["state"] == "firing"}
    closed = {topic: published[0] for topic, published in told.items() if published[0] is not None}
    assert closed.keys() == {topic for topic in firing if topic.endswith("/other")} != set()
    for topic, alert in closed.items():
        was = firing[topic]
        assert (alert["state"], alert["id"], alert["revision"]) == ("removed", was["id"], was["revision"] + 1)
        assert alert["evidence"] == was["evidence"]
    still = {p.topic: json.loads(p.payload) for p in new.standing().publications}
    assert still == {topic: alert for topic, alert in standing.items() if topic.endswith("/first")}
    assert {n.formula for n in effects.notices if isinstance(n, Alert)} == {"other"}
    again = after()
    whole = new.snapshot()
    assert set(whole.agents) == {"a0", "a1", "a2"}, "every agent's state is new to a store"
    assert again.restore(whole.common, whole.agents) == Effects()


def test_another_model_keeps_the_paths_that_fit_it_and_judges_them_anew(
    corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    rows = [(s, a, int(s2), p) for s in range(6) for a in range(2) for s2, p in zip(*corridor.row(s, a), strict=True)]
    safer = [(s, a, s2, (0.1 if s2 == 4 else 0.9) if (s < 4 and a == 0) else p) for s, a, s2, p in rows]
    milder = MDP.from_transitions(states=6, actions=2, transitions=safer, labels={"lost": [4], "home": [5]})
    pipeline, state = lived(maker(corridor, tables, [FIRST, OTHER]), corridor)
    new = maker(milder, tables, [FIRST, OTHER])()
    told = said(new.restore(state.common, state.agents))
    assert set(told) == {publication.topic for publication in pipeline.standing().publications}
    assert {alert["model"]["sha256"] for published in told.values() for alert in published if alert} == {
        model_sha256(corridor)
    }, "an alarm is closed in the name of the model it was raised with"
    before, after = (
        {agent: state and state.session.path.held for agent, state in each.monitor.save(everything=True).agents.items()}
        for each in (pipeline, new)
    )
    assert before == after
    assert any(before.values())


def test_a_model_of_another_size_begins_the_paths_anew_and_says_so(
    corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    small = MDP.from_transitions(
        states=2, actions=2, transitions=[(s, a, s, 1.0) for s in range(2) for a in range(2)], labels={"lost": [1]}
    )
    _, state = lived(maker(corridor, tables, [FIRST]), corridor)
    new = maker(small, {name: as_table([0, 0], small) for name in tables}, [FIRST])()
    new.restore(state.common, state.agents)
    blind = [n for n in new.step(Evaluate(Instant(2000.0, 61.0))).notices if isinstance(n, Blind)]
    assert {(n.agent, n.reason) for n in blind if n.detail} <= {(f"a{n}", "warming_up") for n in range(3)}
    assert any("was changed" in n.detail for n in blind)


def test_alerts_that_moved_to_another_topic_are_cleared_on_the_old_one(
    corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    pipeline, state = lived(maker(corridor, tables, [FIRST]), corridor)
    moved = maker(corridor, tables, [FIRST], alerts="ward/alerts", client_id="new")()
    told = said(moved.restore(state.common, state.agents))
    assert told.pop("cfmon/status/test") == [None]
    retained = said(pipeline.standing())
    cleared = {topic: published for topic, published in told.items() if topic.startswith("cfmon/alerts/")}
    assert cleared == {topic: [None] for topic in retained}
    assert {topic.replace("ward/", "cfmon/"): told[topic] for topic in told.keys() - cleared.keys()} == retained != {}


def test_in_a_fleet_only_what_is_retained_is_taken_back_so_that_none_of_it_is_given_up(
    corridor: MDP, tables: dict[str, PolicyTable]
) -> None:
    """Agents times formulas are more than the outbox holds; of those, one agent's alarms fired."""
    formulas = [FormulaSpec(f"f{n}", f"regret(careful@2, {GOAL})", alarm=AlarmSpec(keep=9)) for n in range(4)]
    pipeline = maker(corridor, tables, formulas)()
    for n in range(100):
        path = [(0, 0), (1, 1)] if n == 0 else [(5, 1)]
        for seq, (state, action) in enumerate(path):
            content = {"v": 1, "episode": 0, "seq": seq, "state": state, "action": action}
            pipeline.step(Message(Instant(1000.0, 0.0), f"agents/a{n:02}/steps", json.dumps(content).encode()))
    pipeline.step(Evaluate(Instant(1000.0, 0.0)))
    retained = {publication.topic for publication in pipeline.standing().publications}
    assert retained == {f"cfmon/alerts/a00/f{n}" for n in range(4)}
    kept = pipeline.snapshot(everything=True)
    outbox = Outbox(limit=20)
    outbox.put(outbox.number(maker(corridor, tables, [FIRST])().restore(kept.common, kept.agents).publications))
    last = {message.topic: message.payload for _, message in outbox.waiting()}
    assert last == dict.fromkeys(retained, b"")
