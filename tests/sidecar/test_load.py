"""From a configuration to a monitor: what is loaded, and that whatever does not fit is refused with its place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import ConfigError, ModelError, MonitorError, PolicyError
from monitor.evidence.document import read_evidence
from monitor.model import MDP
from monitor.model.npz import read_model
from monitor.picture import draw_alarm
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.events import Evaluate, Message
from monitor.types import Alert, Instant
from tests.sidecar.project import CONFIG, write_project


@pytest.fixture
def config(tmp_path: Path, corridor: MDP) -> Path:
    return write_project(tmp_path, corridor)


def test_everything_the_configuration_names_is_loaded(config: Path) -> None:
    loaded = assemble(config)
    assert loaded.mdp.states == 6
    assert sorted(loaded.policies) == ["careful", "nominal"]
    assert [formula.name for formula in loaded.formulas] == ["watch", "chance"]
    assert loaded.formulas[0].alarm.runbook == "https://example.org/watch"
    assert loaded.formulas[0].alarm.instructions == "Call 4711."
    settings = loaded.monitor.settings
    assert settings.window == 16
    assert settings.policies[hashlib.sha256((config.parent / "rash.onnx").read_bytes()).hexdigest()] == "nominal"
    assert loaded.identity.model_name == "model.npz"
    assert settings.policies[loaded.identity.policies["careful"]] == "careful"
    assert loaded.monitor.agents() == ()


def test_a_config_already_read_is_taken_as_it_is(config: Path) -> None:
    assert assemble(load_config(config)).config == assemble(config, {}).config


def test_the_environment_is_given_or_the_process_s(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFMON_HEARTBEAT", "3s")
    assert assemble(config).config.heartbeat == 3.0
    assert assemble(config, {"CFMON_HEARTBEAT": "4s"}).config.heartbeat == 4.0


def test_objects_are_named_by_what_they_hold(config: Path) -> None:
    loaded = assemble(config)
    objects = loaded.objects()
    assert len(objects) == 3
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in objects.items())
    again = read_model(objects[loaded.identity.model_sha256], "object")
    assert np.array_equal(again.probabilities, loaded.mdp.probabilities)


@pytest.mark.parametrize(
    ("change", "kind", "expected"),
    [
        (("model.npz", "absent.npz"), ModelError, "config.yaml, line 2, model: "),
        (("rash.yaml", "absent.yaml"), PolicyError, "config.yaml, line 3, policies.nominal: "),
        (('"lost"', '"lots"'), ConfigError, "config.yaml, line 7, formulas[0].formula: formula, line 1, column 34"),
        (("careful@2", "carefull@2"), ConfigError, "did you mean 'careful'?"),
        (("G<=3", "G"), ConfigError, "needs an interval"),
        (("careful@2", "careful@16"), ConfigError, "offset 16 does not fit the path.window of 16"),
        (
            ("careful: careful.yaml", "do: careful.yaml"),
            ConfigError,
            "line 3, policies.do: no policy can be called 'do', a word of the formula",
        ),
        (
            ("careful: careful.yaml", "best: careful.yaml"),
            ConfigError,
            "line 3, policies.best: no policy can be called 'best', a word of the formula",
        ),
        (("severity: critical", "when: fails"), ConfigError, "formulas[0].alarm.when: 'fails' never happens"),
        (
            ("heartbeat: 1s", 'labels: {lots: "much"}'),
            ConfigError,
            "line 12, labels.lots: the model has no label 'lots'; its labels: home, lost",
        ),
        (
            ("heartbeat: 1s", 'actions: {2: "much"}'),
            ConfigError,
            "line 12, actions.2: the model has no action '2'; its actions: 0..1, as they have no names",
        ),
        (("causal_model: any", "alarm: {for: 2}"), ConfigError, "formulas[1].alarm: a formula with =? gives a number"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, corridor: MDP, change: tuple[str, str], kind: type[MonitorError], expected: str
) -> None:
    path = write_project(tmp_path, corridor, CONFIG.replace(*change))
    with pytest.raises(kind) as raised:
        assemble(path)
    assert expected in str(raised.value)


def test_labels_are_said_in_the_words_of_the_configuration_and_change_no_formula(
    tmp_path: Path, corridor: MDP, config: Path
) -> None:
    named = CONFIG.replace("heartbeat: 1s", 'labels: {lost: "the robot is lost"}')
    loaded = assemble(write_project(tmp_path / "named", corridor, named))
    pipeline = loaded.pipeline("test")
    now = Instant(1000.0, 0.0)
    step = {"v": 1, "episode": "one", "seq": 0, "state": 0, "action": 0, "time": now.wall}
    pipeline.step(Message(now, "agents/ada/steps", json.dumps(step).encode()))
    [fired] = [notice for notice in pipeline.step(Evaluate(now)).notices if isinstance(notice, Alert)]
    assert fired.summary.startswith("ada: P(not 'the robot is lost' in 3 steps) = ")
    assert loaded.formulas == assemble(config).formulas
    assert hash(loaded.formulas[0]) == hash(assemble(config).formulas[0])


def test_actions_are_said_in_the_words_of_the_configuration_wherever_a_person_reads_them(
    tmp_path: Path, corridor: MDP, config: Path
) -> None:
    words = '{1: "fluids low, vasopressor 2", 0: "no fluids"}'
    named = CONFIG.replace("heartbeat: 1s", f"actions: {words}").replace("regret(careful@2", "regret(do(1)@0")
    loaded = assemble(write_project(tmp_path / "named", corridor, named))
    assert loaded.formulas[0].actions == (("0", "no fluids"), ("1", "fluids low, vasopressor 2"))
    pipeline = loaded.pipeline("test")
    now = Instant(1000.0, 0.0)
    step = {"v": 1, "episode": "one", "seq": 0, "state": 0, "action": 0, "time": now.wall}
    pipeline.step(Message(now, "agents/ada/steps", json.dumps(step).encode()))
    effects = pipeline.step(Evaluate(now))
    [fired] = [notice for notice in effects.notices if isinstance(notice, Alert)]
    assert "Take action 'fluids low, vasopressor 2' now: " in fired.summary
    [evidence] = [read_evidence(file.content) for file in effects.evidence]
    assert evidence.actions == loaded.formulas[0].actions
    picture, told = draw_alarm(evidence, loaded.model, loaded.tables, loaded.models)
    assert "did 'no fluids'" in picture
    assert "'fluids low, vasopressor 2'" in told.text
    plain = assemble(config)
    assert plain.formulas[1:] == loaded.formulas[1:], "no formula is another because of its words"


def test_an_altered_policy_is_refused(config: Path) -> None:
    file = config.parent / "careful.onnx"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(PolicyError, match=r"config\.yaml, line 3, policies\.careful: .*sha256|SHA-256"):
        assemble(config)
