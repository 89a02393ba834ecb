"""Evidence where states are hidden: made on a stream, derived again by both programs; what is altered is found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgpack
import numpy as np
import pytest
from msgspec.structs import replace

import monitor
from monitor.alarm.message import Identity, alert_id, identity_of
from monitor.evaluation.models import bytes_of, load_any_policy, sha256_of
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.effort import work
from monitor.evidence.rederivation import ENGINE, REFEREE, Deriver, derive_again
from monitor.evidence.verification import examine
from monitor.policy.controller import Reader, as_reader
from monitor.policy.manifest import Output
from monitor.types import AlarmSpec, Alert, FormulaSpec, TakenOver
from monitor.types.verdicts import NOT_FROM_START
from tests.evidence.rederived import make_evidence
from tests.hidden.files import write_controller, write_network
from tests.hidden.learned import learned
from tests.hidden.played import some_world
from tests.hidden.recurrent import hysteresis, write_recurrent
from tests.hidden.robot import CREEP, GO, WARY, policies, robot
from tests.hidden.scores import model_of, policy
from tests.hidden.test_stream import send, watch
from tests.sidecar.test_every_alteration import alterations, field, forged, packed, put, table
from tests.tiers import first, slow

WATCHED = 'regret(wary@2, P<0.5 [ F<=3 "fallen" ])'
STEPS = [(0, GO), (0, CREEP), (0, GO), (0, None), (0, GO), (None, GO), (0, GO), (1, GO)]
SHA = {"nominal": "a" * 64, "other": "b" * 64}
READERS = {name: as_reader(policy, robot()) for name, policy in policies().items()}


def alarm(
    text: str = WATCHED,
    acting: dict[str, object] | None = None,
    model: monitor.MDP | None = None,
    causal_model: Literal["gumbel", "any"] = "gumbel",
) -> Alert:
    """The alarm of a stream whose first steps have left the window."""
    spec = FormulaSpec("watch", text, alarm=AlarmSpec(), causal_model=causal_model)
    watching = watch(spec, acting=acting, model=model)
    alerts = [n for seq, pair in enumerate(STEPS) for n in send(watching, seq, pair) if isinstance(n, Alert)]
    return next(alert for alert in alerts if alert.seq > 5)


def evidence(
    alert: Alert | None = None, readers: dict[str, Reader] = READERS, model: monitor.MDP | None = None
) -> Evidence:
    alert = alert or alarm()
    return read_evidence(make_evidence(alert, identity_of(model or robot(), readers, {}), readers, {}))


both = pytest.mark.parametrize("deriver", [ENGINE, REFEREE], ids=lambda deriver: deriver.name)


@both
@pytest.mark.parametrize("text", [WATCHED, '@1.P<=0.5 [ F<=2 "fallen" ] | false'])
def test_both_programs_derive_the_alarm_again(deriver: Deriver, text: str) -> None:
    document = evidence(alarm(text))
    assert not document.start_observed
    assert None in [seen for seen, _ in document.path]
    assert None in [taken for _, taken in document.path[:-1]], "the action of a step is not known"
    assert len(document.inputs) == len(document.path)
    assert contradictions(document) == []
    found = derive_again(document, robot(), READERS, {}, [deriver])
    assert (found.problems, found.by, found.notes) == ([], deriver.name, ())


@both
def test_both_programs_derive_the_bounds_again(deriver: Deriver) -> None:
    document = evidence(alarm(causal_model="any"))
    verdict = document.verdict
    assert document.causal_model == "any"
    assert verdict.bounds is not None
    assert verdict.bounds[1] - verdict.bounds[0] > 0.01
    many = replace(document, path=((19, GO), *document.path[1:]))  # the more observations, the larger the problems
    assert 5 * (work(document) - work(evidence())) < work(many) - work(evidence())
    assert work(document) > work(evidence())
    assert derive_again(document, robot(), READERS, {}, [deriver]).problems == []
    nominal, wary = verdict.quantities
    for end in (0, 1):
        bounds = tuple(each + (1e-6 if n == end else 0.0) for n, each in enumerate(verdict.bounds))
        other = replace(document, verdict=replace(verdict, quantities=(nominal, replace(wary, bounds=bounds))))
        problems = derive_again(other, robot(), READERS, {}, [deriver]).problems
        assert [problem.partition(":")[0] for problem in problems] == [f"verdict.quantities[1].bounds[{end}]"]


@both
def test_the_order_of_names_and_a_second_name_of_a_policy_change_nothing(deriver: Deriver) -> None:
    acting = {"nominal": monitor.Controller([[[1, 0], [1, 0]]] * 2, [[0, 1], [1, 0]]), "wary": policies()["wary"]}
    readers = {name: as_reader(policy, robot()) for name, policy in acting.items()}
    document = evidence(alarm(acting=acting), readers)
    assert max(len(each) for each in document.inputs) > 2 * robot().states, "memories differ"
    turned = {"wary": readers["wary"], "nominal": readers["nominal"]}
    assert derive_again(document, robot(), turned, {}, [deriver]).problems == []
    named = {"also": as_reader(acting["nominal"], robot()), **turned}
    found = derive_again(document, robot(), named, {}, [deriver]).problems
    assert [problem.partition(":")[0] for problem in found] == ["policies"]


def nudged(belief: tuple[float, ...]) -> tuple[float, ...]:
    return (belief[0], belief[1] - 1e-6, belief[2], belief[3] + 1e-6, *belief[4:])


ALTERED: dict[str, Callable[[Evidence], Evidence]] = {
    "inputs[1]": lambda e: replace(e, inputs=(nudged(e.inputs[0]), *e.inputs[1:])),
    "inputs[2]": lambda e: replace(e, inputs=(*e.inputs[:2], nudged(e.inputs[2]), *e.inputs[3:])),
    "verdict.belief[0][1]": lambda e: replace(e, path=((1, GO), *e.path[1:])),
    "verdict.evidence": lambda e: replace(e, path=(*e.path[:-1], (0, GO))),
    "verdict.quantities[1].value": lambda e: replace(
        e,
        verdict=replace(e.verdict, quantities=(e.verdict.quantities[0], replace(e.verdict.quantities[1], value=0.25))),
    ),
    "verdict.belief[2][1]": lambda e: replace(
        e, verdict=replace(e.verdict, belief={**(e.verdict.belief or {}), 2: 0.125})
    ),
    "verdict.likely.fallen": lambda e: replace(
        e, verdict=replace(e.verdict, likely={**(e.verdict.likely or {}), "fallen": 0.125})
    ),
    "verdict.believed.hole": lambda e: replace(
        e, verdict=replace(e.verdict, believed={**(e.verdict.believed or {}), "hole": 0.125})
    ),
    "verdict.unseen": lambda e: replace(e, verdict=replace(e.verdict, unseen=4)),
}


@both
@pytest.mark.parametrize("where", ALTERED)
def test_what_is_altered_is_found(deriver: Deriver, where: str) -> None:
    named = dataclasses.replace(robot(), state_names=("bank", "lake", "hole"))
    document = evidence(alarm(model=named), model=named)
    assert derive_again(document, named, READERS, {}, [deriver]).problems == []
    problems = derive_again(ALTERED[where](document), named, READERS, {}, [deriver]).problems
    assert where in [problem.partition(":")[0] for problem in problems]


def test_an_observed_start_has_the_belief_of_the_model() -> None:
    watching = watch(FormulaSpec("watch", 'P<=0.1 [ F<=3 "fallen" ]', alarm=AlarmSpec()))
    [alert] = [n for n in send(watching, 0, (1, GO)) if isinstance(n, Alert)]
    document = evidence(alert)
    assert document.start_observed
    assert derive_again(document, robot(), READERS, {}, [REFEREE]).problems == []
    first = document.inputs[0]
    other = replace(document, inputs=(nudged(first),))
    for deriver in (ENGINE, REFEREE):
        assert f"inputs[0]: the belief has {first[1] - 1e-6!r} at place 0, {first[1]!r} follows" in (
            derive_again(other, robot(), READERS, {}, [deriver]).problems
        )


@both
def test_a_start_that_the_model_does_not_have_is_found(deriver: Deriver) -> None:
    """An episode that begins in state 1 is impossible, whatever belief is written before it."""
    model = monitor.MDP.from_transitions(
        states=2,
        actions=1,
        transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)],
        labels={"fallen": [1]},
        initial={0: 1.0},
        signals=2,
        emissions=[(0, 0, 1.0), (1, 1, 1.0)],
    )
    watching = watch(
        FormulaSpec("watch", 'P<=0.5 [ "fallen" ]', alarm=AlarmSpec()), model=model, acting={"nominal": [0, 0]}
    )
    send(watching, 0, (0, 0))
    [alert] = [n for n in send(watching, 1, (1, 0)) if isinstance(n, Alert)]
    readers = {"nominal": as_reader([0, 0], model)}
    document = evidence(alert, model=model, readers=readers)
    assert derive_again(document, model, readers, {}, [deriver]).problems == []
    forged = replace(document, path=document.path[1:], inputs=document.inputs[1:])
    problems = derive_again(forged, model, readers, {}, [deriver]).problems
    assert any(problem.startswith("inputs: no belief follows: pair 0: observation 1") for problem in problems), problems


def test_a_policy_that_chooses_otherwise_for_an_observation_is_found() -> None:
    readers = {**READERS, "careful": as_reader([CREEP, CREEP], robot())}
    problems = derive_again(evidence(), robot(), readers, {}).problems
    assert [problem.partition(":")[0] for problem in problems] == ["policies.careful.choices[0][1][0][0]"]


def test_an_observation_that_there_is_not_is_found() -> None:
    document = evidence()
    changed = replace(document, path=((7, GO), *document.path[1:]))
    for deriver in (ENGINE, REFEREE):
        problems = derive_again(changed, robot(), READERS, {}, [deriver]).problems
        assert problems[-1].startswith("no verdict follows: pair 0: observation 7 is outside 0..1")


def test_larger_beliefs_are_more_work() -> None:
    document = evidence()
    wide = replace(document, inputs=tuple(each * 100 for each in document.inputs))
    assert work(wide) > work(document) + 100_000


class Filed:
    """The evidence of an alarm whose policies are in files, and the objects that it refers to."""

    def __init__(self, folder: Path, *, recurrent: bool = False) -> None:
        write_network(folder / "nominal.yaml", [GO, GO])
        write_network(folder / "careful.yaml", [GO, CREEP])
        if recurrent:  # as the controller
            output = Output(name="logits", kind="logits")
            write_recurrent(folder / "wary.yaml", hysteresis((0.1, 0.9), "keep raise"), output, mode="greedy")
        else:
            write_controller(folder / "wary.yaml", **WARY)
        model = robot()
        self.objects = {sha256_of(model): bytes_of(model)}
        readers: dict[str, Any] = {}
        sha256: dict[str, str] = {}
        manifests: dict[str, dict[str, Any]] = {}
        for name in READERS:
            loaded = load_any_policy(folder / f"{name}.yaml", model)
            readers[name], manifests[name] = loaded.table, loaded.manifest.model_dump(mode="json")
            content = (folder / loaded.manifest.file).read_bytes()
            sha256[name] = hashlib.sha256(content).hexdigest()
            self.objects[sha256[name]] = content
        identity = Identity("robot", sha256_of(model), sha256, {"monitor": "0.1"})
        raised = alarm(acting=readers)
        spec = FormulaSpec(raised.formula, raised.text)
        number = alert_id(raised.agent, raised.episode, spec, identity, raised.first_seq)
        self.content = make_evidence(replace(raised, id=number), identity, readers, manifests)

    def problems(self, content: bytes) -> tuple[str, ...]:
        try:
            return examine(content, self.objects.__getitem__).problems
        except KeyError:
            return ("there is no such model or policy",)


def test_a_file_of_evidence_is_verified_with_its_policies(tmp_path: Path) -> None:
    filed = Filed(tmp_path)
    report = examine(filed.content, filed.objects.__getitem__)
    assert (report.problems, report.derived_by, report.notes) == ((), "referee", ())


def test_what_a_recurrent_network_remembers_is_evidence(tmp_path: Path) -> None:
    filed = Filed(tmp_path, recurrent=True)
    report = examine(filed.content, filed.objects.__getitem__)
    assert (report.problems, report.derived_by, report.notes) == ((), "referee", ())
    document = msgpack.unpackb(filed.content)
    del document["digest"]
    *_, last = document["inputs"]
    assert len(last) % 3 == 0  # place, weight, what the network remembers
    last[2] += 0.5
    assert any("belief" in each for each in filed.problems(forged(document)))
    (tmp_path / "controller").mkdir()
    same = msgpack.unpackb(Filed(tmp_path / "controller").content)
    assert document["verdict"]["quantities"] == same["verdict"]["quantities"]


@pytest.mark.parametrize("step", [30, pytest.param(1, marks=slow)])
def test_no_more_than_the_documentation_lists_can_be_altered_unnoticed(step: int, tmp_path: Path) -> None:
    filed = Filed(tmp_path)
    document = msgpack.unpackb(filed.content)
    del document["digest"]
    altered = [(place, put(document, replaced, other)) for place, replaced, other in alterations(document)]
    assert len(altered) > 800
    missed = {
        field(place)
        for place, other in altered[::step]
        if packed(other) != packed(document) and not filed.problems(forged(other))
    }
    assert missed <= table()


class Watched:
    """A stream in a random world: steps without observation, lost ones, actions off the policy, takeovers."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.memories = int(rng.integers(1, 3))
        self.world = some_world(rng, memories=self.memories, sees_state=seed % 3 == 0, shadows=seed % 2 == 1)
        self.model = model_of(self.world)
        acting = {"nominal": policy(self.world.nominal), "other": policy(self.world.alternative)}
        self.readers = {name: as_reader(each, self.model) for name, each in acting.items()}
        texts = (
            'other@3.P<=0.3 [ F<=4 "bad" ]',
            'regret(other@2, P<=0.3 [ F<=2 "bad" ])',
            'regret(other@-1, P<=0.5 [ F<=2 "bad" ])',
        )
        specs = [FormulaSpec(f"f{n}", text, alarm=AlarmSpec()) for n, text in enumerate(texts)]
        known = {sha: name for name, sha in SHA.items()}
        self.stream = watch(*specs, model=self.model, acting=acting, policies=known)

    def notices(self) -> Iterator[Alert | TakenOver]:
        """What has evidence."""
        rng, world, mind = self.rng, self.world, self.world.nominal
        actions, who, memory = world.rows.shape[1], "nominal", 0
        state = rng.choice(len(world.initial), p=world.initial)
        first = int(rng.integers(3))
        for seq in range(first, first + 12):
            shown = int(rng.choice(world.emissions.shape[1], p=world.emissions[state]))
            read = state if mind.sees_state else shown
            memory = mind.following[memory, read]
            action = int(rng.choice(actions, p=mind.choice[memory, read]))
            if rng.random() < 0.15:
                action = int(rng.integers(actions))
            state = rng.choice(len(world.initial), p=world.rows[state, action])
            if seq > first + 3 and rng.random() < 0.2:
                continue
            if self.memories == 1 and rng.random() < 0.2:
                who = "other" if who == "nominal" else "nominal"
            pair = None if rng.random() < 0.3 else shown, action
            for notice in send(self.stream, seq, pair, policy=SHA[who], terminated=seq == first + 11):
                if isinstance(notice, Alert | TakenOver) and notice.verdict is not None:
                    yield notice


@pytest.mark.parametrize("seed", first(6, range(40)))
def test_both_programs_derive_every_alarm_and_takeover_of_a_stream(seed: int) -> None:
    watched, found = Watched(seed), 0
    identity = identity_of(watched.model, watched.readers, {})
    tables = {**watched.readers, "deployed": watched.readers["nominal"]}
    for notice in watched.notices():
        document = read_evidence(make_evidence(notice, identity, watched.readers, {}))
        given = {name: tables[name] for name in document.policies}
        assert contradictions(document) == []
        for deriver in (ENGINE, REFEREE):
            assert derive_again(document, watched.model, given, {}, [deriver]) == ([], deriver.name, ())
        found += 1
    assert found or seed >= 6, "the fast seeds raise alarms"


def learned_robot() -> monitor.MDP:
    """The robot's model, estimated from simulated draws."""
    rng, true = np.random.default_rng(3), robot()
    pairs = [(state, action) for state in range(3) for action in (GO, CREEP)]
    moves = {pair: rng.choice(true.row(*pair)[0], 12, p=true.row(*pair)[1]).tolist() for pair in pairs}
    chances = [dict(true.shown(state)) for state in range(3)]
    shows = {state: rng.choice([*each], 9, p=[*each.values()]).tolist() for state, each in enumerate(chances)}
    model = learned(moves, shows, states=3, actions=2, signals=2, initial=np.array([0.5, 0.5, 0.0]))
    return dataclasses.replace(model, labels={**model.labels, "fallen": np.arange(4) == 2})


@both
def test_bands_of_a_learned_model_are_derived_again(deriver: Deriver) -> None:
    model, readers = learned_robot(), {name: as_reader(policy, robot()) for name, policy in policies().items()}
    spec = FormulaSpec("watch", 'regret(wary@2, P<0.3 [ F<=3 "fallen" ])', alarm=AlarmSpec())
    watching = watch(spec, model=model)
    alerts = [n for seq, pair in enumerate(STEPS) for n in send(watching, seq, pair) if isinstance(n, Alert)]
    whole = [each for each in alerts if each.verdict is not None and each.verdict.effect_credible is not None][-1]
    late = alerts[-1]
    assert len(whole.path) > 1
    assert late.verdict is not None
    assert late.verdict.bands is not None
    assert (late.verdict.credible, late.verdict.bands.reason) == (None, NOT_FROM_START)
    for alert in (whole, late):
        document = evidence(alert, readers, model)
        assert contradictions(document) == []
        found = derive_again(document, model, readers, {}, [deriver])
        assert (found.problems, found.by, found.notes) == ([], deriver.name, ())
    document = evidence(whole, readers, model)
    assert document.verdict.credible is not None
    forged = replace(document, verdict=replace(document.verdict, credible=(0.0, document.verdict.credible[1])))
    assert [each.partition(":")[0] for each in derive_again(forged, model, readers, {}, [deriver]).problems] == [
        "verdict.credible[0]"
    ]
    assert work(document) > 10 * work(replace(document, verdict=replace(document.verdict, bands=None)))
