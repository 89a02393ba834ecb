"""Worlds with numbers on a stream: messages to alarms, evidence, restarts, and the test of the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import Monitor, PolicyError, check
from monitor.errors import ConfigError, MonitorError
from monitor.evaluation.uniform_rows import NoiseRows
from monitor.evidence.document import Evidence, pack_evidence, read_evidence
from monitor.evidence.proof import open_proof
from monitor.evidence.rederivation import ENGINE, REFEREE, derive_again
from monitor.runtime.trust import ModelTrust
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.stream.decode import decode
from monitor.stream.world_adapter import WorldAdapter
from monitor.types import (
    Alert,
    Blind,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    OffPolicy,
    Received,
    RewardMismatch,
    Step,
    StreamSettings,
    Trust,
    TrustSettings,
)
from monitor.worlds import Moment, load_world
from monitor.worlds.world_policies import as_world_policy
from tests.tiers import examples, heavy, scaled
from tests.worlds.samples import Tank

FEATURES = StreamSettings(encoder="features")
POLICIES = {
    "nominal": lambda x: np.zeros(len(x), dtype=int),
    "careful": lambda x: (x[:, 0] > 7.5).astype(int),
}
NEAR = FormulaSpec("near", 'regret(careful@3, P>=0.9 [ G<=3 !"overflow" ])')
FAR = FormulaSpec("far", 'regret(careful@3, P>=0.9 [ G<=6 !"overflow" ])')
CONFIG = Path(__file__).parents[2] / "config" / "heating.yaml"
NAMES = ("room", "store", "price")


def rainy(steps: int, seed: int = 0) -> Iterator[Observation]:
    """A tank whose valve stays shut."""
    rng, level = np.random.default_rng(seed), np.array([[5.0]])
    for seq in range(steps):
        rain = float(rng.uniform(0.2, 0.9))
        yield Observation("tank", "e", seq, (float(level[0, 0]),), "shut", inputs=(rain,))
        level = Tank().step(level, np.zeros(1, dtype=np.int64), rng.uniform(size=(1, 1)), np.array([[rain]]))


def at(seq: int) -> Instant:
    return Instant(1000.0 + seq, float(seq))


def followed(monitor: Monitor, messages: list[Observation]) -> list[Notice]:
    return [n for m in messages for n in (*monitor.observe(m, at(m.seq)), *monitor.evaluate(at(m.seq)))]


def tank(*formulas: FormulaSpec, **more: Any) -> Monitor:
    return Monitor(Tank, POLICIES, formulas or (NEAR, FAR), FEATURES, **more)


def judged(notices: list[Notice], formula: str) -> list[Judged]:
    return [n for n in notices if isinstance(n, Judged) and n.formula == formula]


# ---- verdicts ----


def test_what_is_decided_inside_the_window_is_exact_and_the_rest_is_drawn() -> None:
    notices = followed(tank(), list(rainy(12)))
    near, far = judged(notices, "near"), judged(notices, "far")
    assert {v.verdict.method for v in near[3:9]} == {"exact"}
    assert "sampled" in {v.verdict.method for v in far}
    assert near[8].verdict.tiers == ("recorded", "point")
    assert near[9].verdict.tiers == ("recorded", "point", "interval"), "a full tank hides the leak"
    assert [v.verdict.outcome for v in near][8:] == ["regret", "regret", "regret", "unavoidable"]
    alert = next(n for n in notices if isinstance(n, Alert) and n.formula == "far")
    assert "Hand over to 'careful' now: 1.00 instead of 0.00" in alert.summary
    assert alert.inputs == tuple(m.inputs for m in list(rainy(12))[: len(alert.inputs)])


def test_each_verdict_of_a_stream_is_that_of_check() -> None:
    messages = list(rainy(10))
    for verdict in judged(followed(tank(NEAR), messages), "near"):
        path = [(m.state, m.action, m.inputs) for m in messages[: verdict.seq + 1]]
        alone = check(NEAR.text, model=Tank, path=path, policies=POLICIES, recourse=False)
        assert alone.outcome == verdict.verdict.outcome
        if verdict.verdict.method == "exact":
            assert [q.value for q in alone.quantities] == [q.value for q in verdict.verdict.quantities]


@heavy
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_restart_changes_nothing(cut: int) -> None:
    messages, plain, before = list(rainy(12)), tank(), tank()
    wanted = followed(plain, messages)[len(followed(tank(), messages[:cut])) :]
    followed(before, messages[:cut])
    saved = before.save(everything=True)
    after = tank()
    after.load(msgspec.msgpack.decode(msgspec.msgpack.encode(saved), type=type(saved)))
    assert followed(after, messages[cut:]) == wanted


# ---- messages ----


def sent(**changes: object) -> Observation:
    message = {"v": 1, "episode": "e", "seq": 0, "state": {"level": 6.0}, "action": "shut", "inputs": [1.0]}
    return decode("tank", json.dumps({**message, **changes}).encode())


@pytest.mark.parametrize("state", [{"level": 6.0}, [6.0], [6]])
@pytest.mark.parametrize("inputs", [{"rain": 1.0}, [1.0]])
@pytest.mark.parametrize("action", ["shut", 0])
def test_numbers_come_as_a_list_or_by_name(state: object, inputs: object, action: object) -> None:
    monitor = tank()
    (received,) = monitor.observe(sent(state=state, inputs=inputs, action=action), at(0))
    assert isinstance(received, Received)
    assert received.result == "accepted"


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"state": {"levle": 6.0}}, "unknown_state", '"state" has levle; the world has level: send a list'),
        ({"state": [6.0, 7.0]}, "unknown_state", "2 numbers"),
        ({"state": "full"}, "unknown_state", "'full'"),
        ({"state": ["full"]}, "unknown_state", "level='full', which is no number"),
        ({"state": [True]}, "unknown_state", "no number"),
        ({"state": [21.0]}, "out_of_range", "level=21, outside 0 to 10 m"),
        ({"inputs": None}, "unknown_state", '"inputs" has 0 numbers; the world has 1: rain'),
        ({"inputs": [1.0, 2.0]}, "unknown_state", "2 numbers"),
        ({"action": "ajar"}, "unknown_action", "send one of shut, open"),
        ({"action": 2}, "unknown_action", "2 is not an action"),
        ({"action": None}, "missing_action", "seq 0 has no action"),
    ],
)
def test_what_is_no_step_of_the_world_is_rejected_with_the_remedy(
    changes: dict[str, object], reason: str, words: str
) -> None:
    (received,) = tank().observe(sent(**changes), at(0))
    assert isinstance(received, Received)
    assert (received.result, received.reason) == ("rejected", reason)
    assert words in received.detail


def test_a_step_that_no_noise_explains_breaks_the_path() -> None:
    monitor, messages = tank(NEAR), list(rainy(6))
    jumped = msgspec.structs.replace(messages[5], state=(9.9,))
    notices = followed(monitor, [*messages[:5], jumped])
    blind = [n for n in notices if isinstance(n, Blind) and n.reason == "impossible_step"]
    assert blind
    assert "not within (0, 1)" in blind[-1].detail


def test_rewards_and_actions_are_compared_with_the_world_and_nominal() -> None:
    monitor, messages = tank(NEAR), list(rainy(3))
    levels: list[Any] = [m.state for m in messages[:2]]
    right = msgspec.structs.replace(messages[1], reward=levels[1][0] - levels[0][0])
    wrong = msgspec.structs.replace(messages[2], reward=3.0, action="open")
    notices = followed(monitor, [messages[0], right, wrong])
    assert [n.detail for n in notices if isinstance(n, RewardMismatch)] != []
    assert "the world says" in next(n.detail for n in notices if isinstance(n, RewardMismatch))
    assert sum(isinstance(n, RewardMismatch) for n in notices) == 1
    assert sum(isinstance(n, OffPolicy) for n in notices) == 1


# ---- a world or a policy that fails while it is monitored ----


class Failing(Tank):
    """A tank whose parts fail above some level, once it is armed."""

    armed, part = False, ""

    def _fail(self, part: str, level: float) -> None:
        if self.armed and self.part == part and level > 5.7:
            raise ZeroDivisionError(part)

    def step(self, x: Any, a: Any, u: Any, w: Any) -> Any:
        self._fail("step", x[:, 0].max())
        return super().step(x, a, u, w)

    def invert(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
        self._fail("invert", x[0])
        return super().invert(x, a, x_next, w)

    def holds(self, label: str, x: Any) -> Any:
        self._fail("holds", x[:, 0].max())
        return super().holds(label, x)

    def reward(self, x: Any, a: Any, x_next: Any) -> Any:
        self._fail("reward", x[:, 0].max())
        return super().reward(x, a, x_next)

    def choose(self, x: Any) -> Any:
        self._fail("policy", x[:, 0].max())
        return np.zeros(len(x), dtype=int)


@pytest.mark.parametrize("part", ["step", "invert", "holds", "reward", "policy"])
def test_what_fails_stops_no_message_and_is_told(part: str) -> None:
    world = Failing()
    world.part = part
    monitor = Monitor(world, {**POLICIES, "nominal": world.choose}, [NEAR], FEATURES)
    world.armed = True
    messages = [msgspec.structs.replace(m, reward=0.0) for m in rainy(8)]
    notices = followed(monitor, messages)
    assert all(n.result == "accepted" for n in notices if isinstance(n, Received))
    told = [n.detail for n in notices if isinstance(n, Blind | RewardMismatch)]
    told += [n.verdict.reason for n in judged(notices, "near")]
    assert any("ZeroDivisionError" in words for words in told)
    blind = [n.reason for n in notices if isinstance(n, Blind) and n.reason]
    assert ("impossible_step" in blind) == (part in ("step", "invert"))
    world.armed = False
    again = [msgspec.structs.replace(m, seq=m.seq + len(messages)) for m in messages[:1] * 6]
    again = [msgspec.structs.replace(m, seq=len(messages) + n, inputs=(0.1,)) for n, m in enumerate(again)]
    assert judged(followed(monitor, again), "near")[-1].verdict.outcome == "safe", "it goes on when it works again"
    assert not any(isinstance(n, Trust) and n.doubted for n in notices)


def test_a_posterior_that_fails_tests_nothing() -> None:
    rows = NoiseRows(load_world(Unsure))
    before, after = (Step("e", seq, (level,), 0, 0.0, inputs=(1.0,)) for seq, level in enumerate((5.0, 5.93)))
    assert list(rows.transitions("a", before, after)) == []


class Unsure(Tank):
    """A tank whose noise comes back as draws, few of which are worth anything where it counts."""

    def invert(self, x: Any, a: int, x_next: Any, w: Any) -> Any:
        return None if x[0] == 5.0 else super().invert(x, a, x_next, w)

    def posterior(self, x: Any, a: int, x_next: Any, w: Any, rng: Any, n: int) -> Any:
        weights = np.zeros(n)
        weights[0] = 1.0
        return np.tile(Tank.invert(self, x, a, x_next, w), (n, 1)), weights


# ---- what is refused at start ----


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"causal_model": "any"}, "own step is its causal model"),
        ({"engine": "sampled"}, "noise is drawn only where it must be"),
        ({"text": "regret(best@3, P>=0.9 [ G<=3 true ])"}, "best"),
        ({"text": 'P>=0.9 [ G<=3 !"dry" ]'}, "dry"),
    ],
)
def test_what_worlds_do_not_offer_is_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    with pytest.raises(MonitorError, match=words):
        tank(msgspec.structs.replace(NEAR, **change))


def test_encoder_and_model_must_fit() -> None:
    with pytest.raises(ConfigError, match="'features'"):
        Monitor(Tank, POLICIES, [NEAR])
    with pytest.raises(PolicyError, match="a function of states"):
        Monitor(Tank, {"nominal": [0, 1]}, [NEAR], FEATURES)


# ---- a configuration, evidence ----


class House:
    """The configured house and its pipeline, heated by the nominal policy until another one takes over."""

    def __init__(self, rows: slice = slice(370, 390), seed: int = 3, careful_from: int = 99) -> None:
        self.loaded: Loaded = assemble(CONFIG, {})
        self.pipeline = self.loaded.pipeline("house")
        self.effects: list[Effects] = [self.pipeline.step(Connected(at(0), up=True))]
        world, policies = self.loaded.model, self.loaded.tables
        known = {name: policy.sha256 for name, policy in self.loaded.policies.items()}
        weather = np.loadtxt(CONFIG.parents[1] / "policies/heating/weather.csv", delimiter=",", skiprows=1)[rows]
        rng, state = np.random.default_rng(seed), np.array([[19.5, 50.0, weather[0, 1]]])
        for seq, recorded in enumerate(weather):
            acting = "careful" if seq >= careful_from else "nominal"
            action = policies[acting].decide(state)
            message = {
                "v": 1,
                "episode": 1,
                "seq": seq,
                "state": dict(zip(NAMES, state[0].tolist(), strict=True)),
                "action": int(action[0]),
                "inputs": recorded.tolist(),
                "policy": known[acting],
            }
            self.effects.append(
                self.pipeline.step(Message(at(seq), "agents/house/steps", json.dumps(message).encode()))
            )
            self.effects.append(self.pipeline.step(Evaluate(at(seq))))
            state = world.step(state, action, rng.uniform(size=(1, world.noise)), tuple(recorded))  # type: ignore[union-attr]

    def evidence(self) -> list[bytes]:
        return [file.content for effects in self.effects for file in effects.evidence]


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@heavy
def test_live_is_replay_to_the_byte(house: House) -> None:
    again = House()
    assert [msgspec.json.encode(e.publications) for e in house.effects] == [
        msgspec.json.encode(e.publications) for e in again.effects
    ]
    assert again.evidence() == house.evidence()


@heavy
def test_evidence_is_derived_again_from_the_bytes_that_are_kept(house: House) -> None:
    assert house.evidence()
    for content in house.evidence():
        proof = open_proof(read_evidence(content), house.loaded.objects().__getitem__)
        for deriver in (ENGINE, REFEREE):
            found = derive_again(proof.evidence, proof.model, proof.tables, proof.models, [deriver])
            assert (found.problems, found.by) == ([], deriver.name)
        assert proof.evidence.causal_model == "world"
        assert len(proof.evidence.inputs) == len(proof.evidence.path)


def test_an_alert_says_that_inputs_are_resampled(house: House) -> None:
    told = "Inputs beyond the observed ones are resampled from 1,344 recorded steps."
    assert any(told.encode() in each.payload for effects in house.effects for each in effects.publications)
    assert read_evidence(house.evidence()[0]).verdict.resampled_from == 1344


@heavy
def test_the_evidence_of_a_judged_takeover_is_derived_again_from_the_bytes_that_are_kept() -> None:
    house = House(careful_from=4)
    documents = [read_evidence(content) for content in house.evidence()]
    (judged,) = [each for each in documents if each.takeover is not None]
    proof = open_proof(judged, house.loaded.objects().__getitem__)
    assert proof.tables.keys() == {"nominal", "careful", "deployed"}
    for deriver in (ENGINE, REFEREE):
        found = derive_again(proof.evidence, proof.model, proof.tables, proof.models, [deriver])
        assert (found.problems, found.by) == ([], deriver.name)
    assert (judged.first_seq, judged.seq, len(judged.inputs)) == (4, 16, 13)


def _moved(pair: Any) -> Any:
    (room, *rest), action = pair
    return ((room + 0.01, *rest), action)


@heavy
@pytest.mark.parametrize(
    "change",
    [
        lambda e: {"path": (*e.path[:-1], _moved(e.path[-1]))},
        lambda e: {"path": (_moved(e.path[0]), *e.path[1:])},
        lambda e: {"inputs": (*e.inputs[:-1], (e.inputs[-1][0] + 2.0, e.inputs[-1][1]))},
        lambda e: {"inputs": ()},
        lambda e: {"verdict": msgspec.structs.replace(e.verdict, tiers=("point",))},
        lambda e: {"verdict": msgspec.structs.replace(e.verdict, resampled_from=96)},
        lambda e: {"verdict": msgspec.structs.replace(e.verdict, profile={0: (0.5, 1.0)})},
        lambda e: {"verdict": msgspec.structs.replace(e.verdict, causal_model="gumbel")},
    ],
)
def test_altered_evidence_is_caught(house: House, change: Callable[[Evidence], dict[str, Any]]) -> None:
    evidence = read_evidence(house.evidence()[0])
    altered = read_evidence(pack_evidence(msgspec.structs.replace(evidence, **change(evidence))))
    for deriver in (ENGINE, REFEREE):
        assert derive_again(altered, house.loaded.model, house.loaded.tables, {}, [deriver]).problems


def test_the_counterfactual_is_what_the_plant_does_with_the_same_noise() -> None:
    """Rerun under the other policy with the noise that was really drawn, to 1e-9 after ten steps."""
    world, rng = load_world(CONFIG.parents[1] / "policies/heating/world.yaml"), np.random.default_rng(1)
    inputs, states, noises = (-2.0, 0.2), [np.array([[20.0, 55.0, 0.2]])], []
    low, high = np.zeros(1, dtype=np.int64), np.full(1, 2)
    for _ in range(10):
        noises.append(rng.uniform(size=(1, world.noise)))
        states.append(world.step(states[-1], low, noises[-1], inputs))
    real = abduced = states[0]
    for k, noise in enumerate(noises):
        before, after = tuple(states[k][0].tolist()), tuple(states[k + 1][0].tolist())
        found = world.abduce(Moment(before, 0, inputs), after)
        assert found.is_point
        real, abduced = world.step(real, high, noise, inputs), world.step(abduced, high, found.low[np.newaxis], inputs)
    assert np.abs(real - abduced).max() < 1e-9
    assert np.abs(real - states[-1]).max() > 1.0


# ---- the test of the world ----


WORLD = load_world(CONFIG.parents[1] / "policies/heating/world.yaml")
HEAT = np.array([0.0, 1.5, 4.0])


def plant(state: Any, action: Any, noise: Any, inputs: Any, fault: str) -> Any:
    """The house as it is: as the world says, or with one coefficient a fifth less."""
    moved = WORLD.step(state, action, noise, inputs)
    if fault == "heater":
        moved[:, 1] -= 0.2 * HEAT[action]
    if fault == "walls":
        moved[:, 0] += 0.2 * 0.03 * (state[:, 0] - inputs[0])
    return moved


def doubted_after(fault: str, steps: int, seed: int) -> tuple[int | None, list[str]]:
    """The step at which the world is doubted, and what is named, the strongest evidence first."""
    trust = ModelTrust(NoiseRows(WORLD), TrustSettings(), "features")
    test, rng = trust.join(), np.random.default_rng(seed)
    assert test is not None
    state, before = np.array([[21.0, 55.0, 0.2]]), None
    for seq in range(steps):
        inputs = (float(3.0 * np.sin(seq / 15)), 0.2)
        action = (state[:, 1] < 60).astype(np.int64) + (state[:, 1] < 52)
        now = Step("e", seq, tuple(state[0].tolist()), int(action[0]), 0.0, inputs=inputs)
        if before is not None:
            trust.step(test, f"house{seed}", before, now)
        if test.rejected:
            return seq, [str(each.state) for each in trust.for_agent("house", test).departing]
        noise = rng.uniform(size=(1, WORLD.noise))
        state, before = plant(state, action, noise, inputs, fault), now
    return None, []


@pytest.mark.parametrize(("fault", "feature"), [("heater", "store"), ("walls", "room")])
def test_a_wrong_coefficient_is_doubted_and_its_feature_named(fault: str, feature: str) -> None:
    for seed in range(3):
        after, named = doubted_after(fault, 400, seed)
        assert after is not None
        assert after < 200
        assert named[0].startswith(feature)


@scaled
def test_a_true_world_is_not_doubted() -> None:
    assert [doubted_after("", 150, seed)[0] for seed in range(examples(4, 60))].count(None) == examples(4, 60)


def test_an_interval_is_tested_by_a_draw_in_it_and_what_did_not_matter_is_not() -> None:
    rows = NoiseRows(load_world(Tank))
    before, after = (Step("e", seq, (10.0,), 0, 0.0, inputs=(3.0,)) for seq in range(2))
    assert list(rows.transitions("a", before, after)) == [], "it rains so much that the leak does not matter"
    before = msgspec.structs.replace(before, state=(9.0,), inputs=(1.1,))
    after = msgspec.structs.replace(after, state=(10.0,))
    cells = {next(iter(rows.transitions(f"a{k}", before, after)))[1] for k in range(60)}
    assert cells == {0, 1, 2, 3}, "the leak was below one half"


def test_the_nominal_policy_is_asked_once_a_step() -> None:
    asked: list[Any] = []

    def nominal(states: Any) -> Any:
        asked.append(states.tolist())
        return np.zeros(len(states), dtype=int)

    world = load_world(Tank)
    adapter = WorldAdapter(world, StreamSettings(encoder="features"), as_world_policy("nominal", nominal, world))
    for state in ((6.0,), (7.0,), (6.0,)):
        assert adapter.excess((state, 1, (1.0,)))[0] > 0.0
        assert adapter.off_policy((state, 1, (1.0,)))
        assert not adapter.off_policy((state, 0, (1.0,)))
    assert asked == [[[6.0]], [[7.0]], [[6.0]]]
