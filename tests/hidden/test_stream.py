"""Hidden states on the stream: every verdict is that of `monitor.check` on all that was observed since the start."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import monitor
from monitor.errors import InputError
from monitor.runtime.monitor import Monitor, MonitorState
from monitor.sidecar.config.load import assemble
from monitor.sidecar.events import Message
from monitor.stream.decode import decode
from monitor.types import (
    AlarmSpec,
    Alert,
    Blind,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    Received,
    StreamSettings,
    TakenOver,
    Trust,
)
from tests.hidden.files import write_controller, write_network
from tests.hidden.played import some_world
from tests.hidden.robot import CREEP, FALLEN, GO, GROUND, ICE, WARY, events, policies, robot, write_robot
from tests.hidden.scores import model_of, policy
from tests.tiers import heavy

WINDOW = 5

Pair = tuple[int | None, int | None]


def watch(
    *formulas: str | FormulaSpec,
    model: monitor.MDP | None = None,
    acting: dict[str, object] | None = None,
    **settings: Any,  # noqa: ANN401 - of StreamSettings
) -> Monitor:
    settings = {"window": WINDOW, "reorder_wait": 0.0, "reorder_steps": 1, **settings}
    return Monitor(model or robot(), acting or policies(), formulas, StreamSettings(**settings))


def send(watching: Monitor, seq: int, pair: Pair, **more: Any) -> list[Notice]:  # noqa: ANN401 - of Observation
    """Send one step, and return what came of it."""
    now = Instant(1000.0 + seq, float(seq))
    seen = Observation("a", more.pop("episode", "e"), seq, action=pair[1], observation=pair[0], **more)
    return [*watching.observe(seen, now), *watching.evaluate(now)]


def judged(notices: Iterable[Notice]) -> dict[str, monitor.Verdict]:
    return {notice.formula: notice.verdict for notice in notices if isinstance(notice, Judged)}


def assert_same(verdict: monitor.Verdict, other: monitor.Verdict) -> None:
    """What a path that holds less than was observed makes different is not compared."""
    assert verdict.outcome == other.outcome
    assert verdict.belief == pytest.approx(other.belief, abs=1e-12)
    assert [q.value for q in verdict.quantities] == pytest.approx([q.value for q in other.quantities], abs=1e-12)


@heavy
@pytest.mark.parametrize("seed", range(12))
def test_a_verdict_rests_on_all_that_was_observed_also_what_has_left_the_window(seed: int) -> None:
    """Steps without observation, without action and lost ones are all steps of which less is known."""
    rng = np.random.default_rng(seed)
    memories = int(rng.integers(1, 3))
    world = some_world(rng, memories=memories, sees_state=bool(seed % 3 == 0), shadows=bool(seed % 2))
    model, acting = model_of(world), {"nominal": policy(world.nominal), "other": policy(world.alternative)}
    texts = ['P=? [ F<=3 "bad" ]', 'other@3.P=? [ F<=4 "bad" ]', 'regret(other@2, P<=0.5 [ F<=2 "bad" ])']
    watching = watch(*texts, model=model, acting=acting)
    path: list[Pair] = []
    state = rng.choice(len(world.initial), p=world.initial)
    memory, lost, unknown = 0, 0, np.random.default_rng(seed)
    for seq in range(14):
        shown = int(rng.choice(world.emissions.shape[1], p=world.emissions[state]))
        mind = world.nominal
        read = state if mind.sees_state else shown
        memory = mind.following[memory, read]
        action = int(rng.choice(world.rows.shape[1], p=mind.choice[memory, read]))
        state = rng.choice(world.rows.shape[0], p=world.rows[state, action])
        if 3 < seq < 12 and rng.random() < 0.2:  # this message is lost
            path.append((None, None))
            lost += 1
            continue
        path.append((None if rng.random() < 0.3 else shown, None if unknown.random() < 0.2 else action))
        verdicts = judged(send(watching, seq, path[-1]))
        for n, text in enumerate(texts):
            whole = monitor.check(text, model=model, path=path, policies=acting)
            assert_same(verdicts[f"formula_{n}"], whole)
            held = path[-WINDOW:]
            assert verdicts[f"formula_{n}"].unseen == sum(seen is None for seen, _ in held)
    assert lost or seed not in {0, 1, 2}, "some messages were lost"


def test_an_agent_that_is_joined_in_the_middle_is_where_nobody_has_seen_it_yet() -> None:
    watching = watch('P=? [ "ice" ]', 'careful@2.P=? [ F<=2 "fallen" ]')
    send(watching, 7, (1, GO))
    notices = send(watching, 8, (0, GO))
    whole = monitor.check(
        'P=? [ "ice" ]', model=robot(), path=[(None, None)] * 7 + [(1, GO), (0, GO)], policies=policies()
    )
    assert_same(judged(notices)["formula_0"], whole)
    assert "formula_1" not in judged(notices), "the path is too short for it, and its start was not observed"


def test_what_is_impossible_breaks_the_path_and_is_believed_no_more() -> None:
    model = monitor.MDP.from_transitions(
        states=2,
        actions=1,
        transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)],
        labels={"late": [1]},
        initial={0: 1.0},
        signals=2,
        emissions=[(0, 0, 1.0), (1, 1, 1.0)],
    )
    watching = watch(
        'P=? [ "late" ]', 'only@1.P=? [ F<=1 "late" ]', model=model, acting={"nominal": [0, 0], "only": [0, 0]}
    )
    send(watching, 0, (0, 0))
    send(watching, 1, (1, 0))
    notices = send(watching, 2, (0, 0))
    blind = {notice.formula: notice for notice in notices if isinstance(notice, Blind)}
    assert [blind[name].reason for name in sorted(blind)] == [None, "impossible_step"]
    assert "observation 0 with action 0 is impossible" in blind["formula_1"].detail
    assert judged(notices)["formula_0"].unseen == 1, "what cannot be is not believed"
    notices = send(watching, 3, (1, 0))
    assert judged(notices)["formula_0"].value == 1.0
    assert judged(notices)["formula_1"].value == 1.0, "the path is long enough again"


def test_it_goes_on_after_a_restart_to_the_bit() -> None:
    texts = 'wary@3.P=? [ F<=6 "fallen" ]', 'regret(careful@2, P<=0.8 [ F<=6 "fallen" ])'
    one, other = watch(*texts), watch(*texts)
    pairs: list[Pair] = [(1, GO), (None, GO), (0, GO), (1, GO), (1, GO), (None, GO), (1, GO), (0, GO)]
    for seq, pair in enumerate(pairs[:6]):
        send(one, seq, pair)
    saved = one.save(everything=True)
    encoded = msgspec.msgpack.encode(saved)
    other.load(msgspec.msgpack.decode(encoded, type=type(saved)))
    assert isinstance(saved.common, MonitorState)
    for seq, pair in enumerate(pairs[6:], start=6):
        assert judged(send(one, seq, pair)) == judged(send(other, seq, pair))


def test_the_alert_says_what_is_believed() -> None:
    spec = FormulaSpec(
        "slip", 'regret(wary@3, P<=0.8 [ F<=6 "fallen" ])', labels=(("ice", "on thin ice"),), alarm=AlarmSpec(for_=1)
    )
    watching = watch(spec, model=dataclasses.replace(robot(), state_names=("bank", "lake", "hole")))
    alerts: list[Alert] = []
    for seq, pair in enumerate([(None, GO), (1, GO), (None, GO), (1, GO)]):
        alerts += [notice for notice in send(watching, seq, pair) if isinstance(notice, Alert)]
    assert alerts, "it fires"
    newest = alerts[-1]
    assert any(
        "Its state is not seen; probability now: " in each and "'on thin ice' 0." in each for each in newest.details
    )
    assert any("; likeliest: hole 0." in each for each in newest.details), "states are named too"
    assert any("nothing was seen" in each for each in newest.details)
    assert newest.path[0] == (None, GO)
    assert len(newest.inputs) == len(newest.path), "the belief before each step is in the evidence"


@pytest.mark.parametrize("wrong", [False, True])
def test_a_wrong_sensor_is_noticed_and_a_right_one_is_not(wrong: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(5)
    watching, model = watch('P=? [ "ice" ]', window=2), robot()
    trusts: list[Trust] = []
    for episode in range(60):
        state = int(rng.choice(3, p=[0.5, 0.5, 0.0]))
        for seq in range(12):
            shown = int(rng.random() < (0.55 if wrong else {GROUND: 0.1, ICE: 0.7, FALLEN: 0.5}[state]))
            notices = send(watching, seq, (shown, GO), episode=f"e{episode}", truncated=seq == 11)
            trusts += [notice for notice in notices if isinstance(notice, Trust)]
            states, chances = model.row(state, GO)
            state = int(rng.choice(states, p=chances))
    assert any(each.doubted for each in trusts) == wrong


def test_a_takeover_is_judged() -> None:
    known = {"a" * 64: "nominal", "b" * 64: "careful"}
    watching = watch('regret(careful@2, P<=0.5 [ F<=2 "fallen" ])', window=8, policies=known)
    over: list[TakenOver] = []
    path: list[Pair] = [(1, GO), (1, GO), (1, CREEP), (1, CREEP), (0, GO), (1, CREEP)]
    acted = ["nominal", "nominal", "careful", "careful", "careful", "careful"]
    for seq, pair in enumerate(path):
        sha256 = "a" * 64 if acted[seq] == "nominal" else "b" * 64
        over += [notice for notice in send(watching, seq, pair, policy=sha256) if isinstance(notice, TakenOver)]
    assert [each.outcome for each in over] != ["undecided"], over[0].reason
    verdict = over[0].verdict
    assert verdict is not None
    asked = [(*pair, belief) for pair, belief in zip(over[0].path, over[0].inputs, strict=True)]
    deployed = verdict.quantities[1].text.split("@")[0]
    again = monitor.check(
        verdict.formula, model=robot(), path=asked, policies={**policies(), deployed: [GO, GO]}, acted=over[0].acted
    )
    assert_same(verdict, again)


def test_policies_that_remember_where_states_are_seen() -> None:
    model = monitor.MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 0, 1.0), (1, 0, 1, 0.5), (1, 0, 0, 0.5), (1, 1, 0, 1.0)],
        labels={"bad": [1]},
    )
    acting = {"nominal": [0, 0], "wary": monitor.Controller(**WARY)}
    text = 'wary@2.P=? [ F<=3 "bad" ]'
    watching, path = watch(text, model=model, acting=acting, window=3), []
    for seq, state in enumerate([0, 1, 0, 0, 0, 1, 0]):
        path.append((state, 0))
        now = Instant(float(seq), float(seq))
        notices = [*watching.observe(Observation("a", 1, seq, state, 0), now), *watching.evaluate(now)]
        verdict = judged(notices)["formula_0"]
        assert_same(verdict, monitor.check(text, model=model, path=path, policies=acting))
        assert (verdict.likely, verdict.unseen) == (None, None), "no alert says that the state is not seen"


def test_joined_in_the_middle_a_memory_is_not_known() -> None:
    model = monitor.MDP.from_transitions(
        states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)], labels={"bad": []}
    )
    acting = {"nominal": [0], "wary": monitor.Controller([[[1, 0]], [[0, 1]]], [[1], [0]])}
    watching = watch('wary@0.P=? [ F<=3 "bad" ]', model=model, acting=acting)
    now = Instant(5.0, 5.0)
    notices = [*watching.observe(Observation("a", 1, 5, 0, 0), now), *watching.evaluate(now)]
    assert "what a policy remembers is not known" in judged(notices)["formula_0"].reason


@pytest.mark.parametrize(
    ("model", "message", "reason"),
    [
        ("hidden", {"state": 1}, "unknown_key"),
        ("hidden", {"state": 1.5, "observation": 1}, "wrong_type"),
        ("hidden", {"observation": 2}, "unknown_state"),
        ("hidden", {"observation": "ice"}, "unknown_state"),
        ("hidden", {"observation": 1, "inputs": [1.0]}, "unknown_key"),
        ("seen", {"observation": 1}, "unknown_key"),
        ("seen", {"observation": None}, "missing_key"),
        ("seen", {"state": 1, "observation": 1}, "unknown_key"),
    ],
)
def test_messages_for_another_kind_of_model_are_rejected(model: str, message: dict[str, Any], reason: str) -> None:
    seen = monitor.MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], labels={"ice": [1]}
    )
    watching = (
        watch('P=? [ F<=1 "ice" ]')
        if model == "hidden"
        else watch('P=? [ F<=1 "ice" ]', model=seen, acting={"nominal": [0, 0]})
    )
    payload = json.dumps({"v": 1, "episode": "e", "seq": 0, "action": 0, **message}).encode()
    received = [each for each in watching.receive("a", payload, Instant(1.0, 1.0)) if isinstance(each, Received)]
    assert [(each.result, each.reason) for each in received] == [("rejected", reason)]


def test_observations_are_sent_by_index() -> None:
    with pytest.raises(monitor.ConfigError, match="where states are hidden it is 'index'"):
        watch('P=? [ "ice" ]', encoder="name")


def test_observations_may_be_sent_by_name() -> None:
    numbered = robot()
    assert numbered.emissions is not None
    named = dataclasses.replace(numbered, emissions=numbered.emissions.named(["dry", "slippery"]))
    text = 'wary@1.P=? [ F<=3 "fallen" ]'
    watching, by_number = watch(text, model=named), watch(text)
    for seq, shown in enumerate(["dry", "slippery", None, "dry"]):
        found = judged(send(watching, seq, (shown, GO)))  # type: ignore[arg-type]
        number = None if shown is None else named.signal_index[shown]
        assert_same(found["formula_0"], judged(send(by_number, seq, (number, GO)))["formula_0"])
    payload = b'{"v": 1, "episode": "e", "seq": 4, "action": 0, "observation": "wet"}'
    received = [each for each in watching.receive("a", payload, Instant(1.0, 1.0)) if isinstance(each, Received)]
    assert [(each.result, each.reason) for each in received] == [("rejected", "unknown_state")]


def test_a_message_has_a_state_or_an_observation() -> None:
    assert decode("a", b'{"v": 1, "episode": 1, "seq": 0, "observation": null, "action": 1}') == Observation(
        "a", 1, 0, action=1
    )
    assert decode("a", b'{"v": 1, "episode": 1, "seq": 0, "observation": 4, "action": 1}').observation == 4
    labelled = decode("a", b'{"v": 1, "episode": 1, "seq": 0, "observation": 4, "state": "hole", "action": 1}')
    assert (labelled.observation, labelled.state, labelled.truth) == (4, None, "hole")
    unseen = decode("a", b'{"v": 1, "episode": 1, "seq": 0, "observation": null, "state": 2, "action": 1}')
    assert (unseen.observation, unseen.state, unseen.truth) == (None, 2, 2), "a state, if states are seen"
    with pytest.raises(InputError, match="no state"):
        decode("a", b'{"v": 1, "episode": 1, "seq": 0, "action": 1}')


def test_the_same_step_with_another_observation_is_a_conflict() -> None:
    watching = watch('P=? [ "ice" ]')
    results = [
        notice.result for seen in (0, 0, 1) for notice in send(watching, 0, (seen, GO)) if isinstance(notice, Received)
    ]
    assert results == ["accepted", "duplicate", "conflict"]


CONFIG = """
mqtt: {{url: "mqtt://127.0.0.1:1"}}
model: {model}
state_encoder: index
policies: {{nominal: {folder}/nominal.yaml, wary: {folder}/wary.yaml}}
formulas:
  - name: slip
    formula: 'regret(wary@3, P<=0.8 [ F<=6 "fallen" ])'
store: {{path: null}}
"""


def test_a_configuration_names_a_model_with_emissions_and_a_controller(tmp_path: Path) -> None:
    monitor.save_model(robot(), tmp_path / "robot.npz")
    write_network(tmp_path / "nominal.yaml", [GO, GO])
    write_controller(tmp_path / "wary.yaml", **WARY)
    (tmp_path / "config.yaml").write_text(CONFIG.format(model=tmp_path / "robot.npz", folder=tmp_path))
    loaded = assemble(tmp_path / "config.yaml", {})
    watching = loaded.monitor
    notices = [notice for seq in range(4) for notice in send(watching, seq, (1, GO))]
    whole = monitor.check(
        'regret(wary@3, P<=0.8 [ F<=6 "fallen" ])', model=robot(), path=[(1, GO)] * 4, policies=policies()
    )
    assert_same([notice.verdict for notice in notices if isinstance(notice, Judged)][-1], whole)
    assert {"nominal", "wary"} == set(loaded.identity.policies)
    with pytest.raises(monitor.ConfigError, match="states are hidden"):
        _ = loaded.mdp


TRUE = (0, 1, 2, 77, "nowhere", None)


def test_true_states_change_nothing(tmp_path: Path) -> None:
    """All effects are equal to the byte, also if a repeated message has another label, or one that no state has."""
    loaded = [assemble(write_robot(tmp_path / "robot"), {}) for _ in range(2)]
    rng, labels, effects = np.random.default_rng(7), 0, []
    plain, labelled = (each.pipeline("robot") for each in loaded)
    for event in events(tmp_path / "robot", steps=40):
        other = event
        if isinstance(event, Message):
            code, true = msgspec.json if event.payload[:1] == b"{" else msgspec.msgpack, TRUE[rng.integers(len(TRUE))]
            with contextlib.suppress(msgspec.MsgspecError):
                written = code.encode({**code.decode(event.payload), "state": true})
                other = Message(event.now, event.topic, written)
                labels += true is not None
        effects.append(plain.step(event))
        assert repr(labelled.step(other)) == repr(effects[-1])
    notices = [notice for each in effects for notice in each.notices]
    assert labels > 60
    assert {each.result for each in notices if isinstance(each, Received)} >= {"accepted", "duplicate"}
    assert any(isinstance(each, Alert) for each in notices)
    assert any(each.evidence for each in effects)
