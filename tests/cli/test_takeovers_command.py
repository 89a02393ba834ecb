"""Takeovers from messages to evidence, `cfmon verify` and the audit of `cfmon takeovers`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.runtime.takeovers import CUT_OFF, NESTED, SAMPLED, UNREPORTED
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Message
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.sinks.logbook import Logbook, log_watched
from monitor.sidecar.sinks.metrics import Metrics
from monitor.types import Instant, TakenOver
from tests.deploy.small_world import CRASH, DRIFT, EDGE, PARK, ROAD, STAY, write_world

Cfmon = Callable[..., tuple[int, str, str]]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_world(tmp_path, "mqtt://localhost", "127.0.0.1:0")


@pytest.fixture
def loaded(world: Path) -> Loaded:
    return assemble(world)


class Agent:
    """An agent whose messages name the policy that acts."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.pipeline = self.make()
        self.effects: list[Effects] = []
        self.seq = 0

    def make(self) -> Pipeline:
        """A pipeline that has seen nothing."""
        return self.loaded.with_formulas(self.loaded.formulas).pipeline("test")

    def send(self, policy: str, state: int, action: int, **more: object) -> None:
        sha256 = self.loaded.identity.policies.get(policy, policy)
        step = {"v": 1, "episode": "e", "seq": self.seq, "state": state, "action": action, "policy": sha256, **more}
        now = Instant(1000.0 + self.seq, float(self.seq))
        self.effects.append(self.pipeline.step(Message(now, "agents/ada/steps", json.dumps(step).encode())))
        self.effects.append(self.pipeline.step(Evaluate(now)))
        self.seq += 1

    def restart(self) -> None:
        snapshot = self.pipeline.snapshot(everything=True)
        self.pipeline = self.make()
        self.effects.append(self.pipeline.restore(snapshot.common, snapshot.agents, snapshot.pages))

    @property
    def taken(self) -> list[TakenOver]:
        return [notice for effects in self.effects for notice in effects.notices if isinstance(notice, TakenOver)]

    def kept(self, folder: Path) -> Path:
        """Write the evidence and what it refers to, as the store does; return the folder of the evidence."""
        for name in ("evidence", "objects"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for effects in self.effects:
            for file in effects.evidence:
                (folder / "evidence" / file.id).write_bytes(file.content)
        for sha256, content in self.loaded.objects().items():
            (folder / "objects" / sha256).write_bytes(content)
        return folder / "evidence"


def saved(agent: Agent) -> None:
    """The agent drifts, another policy takes over for the rest of the horizon, and nothing happens."""
    agent.send("nominal", ROAD, DRIFT)
    for _ in range(4):
        agent.send("careful", ROAD, STAY)


def test_a_takeover_is_judged_from_messages_and_its_evidence_verified(
    loaded: Loaded, tmp_path: Path, cfmon: Cfmon
) -> None:
    agent = Agent(loaded)
    saved(agent)
    [taken] = agent.taken
    assert (taken.outcome, taken.policy, taken.first_seq, taken.seq) == ("needed", "careful", 1, 4)
    assert taken.verdict is not None
    assert [quantity.value for quantity in taken.verdict.quantities] == [1.0, pytest.approx(0.1**3 + 3 * 0.9 * 0.1**2)]
    folder = agent.kept(tmp_path / "kept")
    code, out, _ = cfmon("verify", str(folder / taken.evidence))
    assert code == 0, out
    assert "takeover by 'careful' from step 1: needed for careful_would_have, of agent ada, episode e" in out
    assert "recomputed by: referee" in out
    document = json.loads(cfmon("verify", str(folder / taken.evidence), "--json")[1])
    assert document["verified"]
    assert document["takeover"] == {"policy": "careful", "outcome": "needed"}
    code, _, error = cfmon("explain", str(folder / taken.evidence))
    assert code == 2
    assert "only alarms are drawn" in error


def test_a_restart_in_between_changes_nothing(loaded: Loaded) -> None:
    agent = Agent(loaded)
    agent.send("nominal", ROAD, DRIFT)
    agent.send("careful", ROAD, STAY)
    agent.restart()
    for _ in range(3):
        agent.send("careful", ROAD, STAY)
    assert [taken.outcome for taken in agent.taken] == ["needed"]


def test_the_end_of_an_episode_and_an_unknown_policy_on_messages(loaded: Loaded) -> None:
    ended, unknown = Agent(loaded), Agent(loaded)
    for agent in (ended, unknown):
        agent.send("nominal", ROAD, DRIFT)
    ended.send("careful", EDGE, STAY)
    ended.send("careful", PARK, STAY, terminated=True)
    [taken] = ended.taken
    assert (taken.outcome, taken.terminated) == ("needed", True)
    unknown.send("careful", EDGE, STAY)
    unknown.send("c" * 64, ROAD, STAY)
    [lost] = unknown.taken
    assert (lost.outcome, lost.evidence) == ("undecided", "")


def test_the_audit_counts_what_was_needed(loaded: Loaded, tmp_path: Path, cfmon: Cfmon) -> None:
    agent = Agent(loaded)
    saved(agent)
    agent.send("careful", ROAD, STAY, truncated=True)
    folder = agent.kept(tmp_path / "kept")
    [name] = [taken.evidence for taken in agent.taken]
    assert len(list(folder.iterdir())) > 1, "an alarm has evidence there too, which is not a takeover"
    held = "    the goal's path formula held after: 1; if the deployed policy had gone on, expected 0.03"
    code, out, _ = cfmon("takeovers", str(folder))
    assert code == 0
    assert out.splitlines() == [
        f"judgements of takeovers with evidence in {folder}: 1",
        "  careful_would_have, by 'careful', for P>=0.8 [ G<=3 !\"crash\" ]: 1",
        "    needed 1, needless 0, harmful 0, futile 0",
        f"{held} (standard deviation 0.16)",
        "  undecided takeovers leave no evidence; cfmon_takeovers_total counts them",
    ]
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    code, out, _ = cfmon("takeovers", str(folder), "--json")
    assert code == 1
    document = json.loads(out)
    assert document["takeovers"] == []
    assert document["damaged"][0].startswith(f"{name}: evidence: ")
    assert "DAMAGED: " in cfmon("takeovers", str(folder))[1]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, cfmon: Cfmon) -> None:
    code, _, error = cfmon("takeovers", str(tmp_path / "nowhere"))
    assert code == 2
    assert "nowhere: No such file or directory; give the folder with the evidence" in error


def test_the_check_of_a_configuration_says_who_judges_and_whether_the_window_suffices(
    world: Path, cfmon: Cfmon
) -> None:
    config = json.loads(world.read_text())
    notes = {}
    for window in (16, 3):
        world.write_text(json.dumps({**config, "path": {"window": window, "reorder": {"steps": 16, "wait": "100ms"}}}))
        notes[window] = json.loads(cfmon("config", "check", str(world), "--json")[1])["notes"]
    assert notes[16] == ["careful_would_have judges takeovers by 'careful' after 4 steps"]
    short = "; all are undecided, because path.window is 3: make it 4 or more"
    assert notes[3] == [notes[16][0] + short]


def test_the_check_of_a_configuration_says_why_a_formula_judges_no_takeovers(world: Path, cfmon: Cfmon) -> None:
    config = json.loads(world.read_text())
    goal = 'P>=0.5 [ G<=2 !"crash" ]'
    nested = f"regret(careful@1, P>=0.5 [ F<=1 ({goal}) ])"
    config["formulas"] = [
        {"name": "nested", "formula": nested},
        {"name": "drawn", "formula": f"regret(careful@1, {goal})", "engine": "sampled"},
        {"name": "braking", "formula": f"regret(do(1)@1, {goal})"},
    ]
    world.write_text(json.dumps(config))
    notes = json.loads(cfmon("config", "check", str(world), "--json")[1])["notes"]
    assert notes == [f"nested judges no takeovers: {NESTED}", f"drawn judges no takeovers: {SAMPLED}"]


@pytest.mark.parametrize("other", ["other", "nominal"])
def test_a_policy_with_the_file_of_another_is_reported_by_the_check_and_at_start(
    world: Path, cfmon: Cfmon, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    config = json.loads(world.read_text())
    config["policies"][other] = config["policies"]["careful"]
    world.write_text(json.dumps(config))
    note = f"careful_would_have judges no takeovers: {UNREPORTED}"
    assert json.loads(cfmon("config", "check", str(world), "--json")[1])["notes"] == [note]
    log_watched(assemble(world))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [note]


def counted(metrics: Metrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    start = 'cfmon_takeovers_total{formula="careful_would_have",outcome="'
    return {
        line.removeprefix(start).partition('"')[0]: float(line.split()[-1]) for line in lines if line.startswith(start)
    }


def test_log_and_metrics_have_each_judgement(loaded: Loaded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    metrics, log, agent = Metrics(loaded.watched), Logbook(loaded.watched), Agent(loaded)
    assert counted(metrics) == dict.fromkeys(["needed", "needless", "harmful", "futile", "undecided"], 0.0)
    assert 'formula="likely_safe",outcome="needed"' not in metrics.exposition().decode(), "it judges none"
    saved(agent)
    agent.send("nominal", ROAD, DRIFT)
    agent.send("careful", EDGE, STAY, truncated=True)
    for effects in agent.effects:
        metrics.take(effects, Instant(1000.0, 0.0))
        log.take(effects, Instant(1000.0, 0.0))
    assert counted(metrics) == {"needed": 1, "needless": 0, "harmful": 0, "futile": 0, "undecided": 1}
    lines = [record.getMessage() for record in caplog.records if "takeover" in record.getMessage()]
    [needed, undecided] = lines
    assert needed.startswith("ada: the takeover by 'careful' at step 1 of 'e' was needed for careful_would_have: ")
    assert needed.endswith(f" [evidence {agent.taken[0].evidence}]")
    assert undecided.endswith(f"is not judged by careful_would_have: {CUT_OFF}")


def test_without_a_store_a_takeover_is_judged_without_evidence(world: Path) -> None:
    world.write_text(json.dumps({**json.loads(world.read_text()), "store": {"path": None}}))
    agent = Agent(assemble(world))
    saved(agent)
    [taken] = agent.taken
    assert (taken.outcome, taken.evidence) == ("needed", "")
    assert all(effects.evidence == () for effects in agent.effects)


def test_what_crashes_was_not_saved(loaded: Loaded) -> None:
    agent = Agent(loaded)
    agent.send("nominal", ROAD, DRIFT)
    agent.send("careful", EDGE, DRIFT)  # what it does is what the deployed policy does
    agent.send("careful", CRASH, STAY, terminated=True)
    assert [taken.outcome for taken in agent.taken] == ["futile"]
