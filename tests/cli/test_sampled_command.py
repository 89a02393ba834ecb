"""Sampled answers on the command line and from a configuration, up to evidence that is verified."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from monitor.errors import ConfigError
from monitor.evidence.document import read_evidence
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.events import Connected, Evaluate, Message
from monitor.types import Instant, Sampling
from tests.sidecar.project import write_project

Run = Callable[..., tuple[int, str, str]]
ARGUMENTS = (
    "--model",
    "model.npz",
    "--path",
    "path.json",
    "--policy",
    "nominal=wait.json",
    "--policy",
    "bold=bold.json",
)
CONFIG = """\
model: model.npz
policies: {nominal: rash.yaml, careful: careful.yaml}
formulas:
  - name: watch
    formula: 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
    engine: sampled
sampling: {seed: 5, alpha: 0.02, beta: 0.03, error: 0.1, error_alpha: 0.04, limit: 5000, test: paper}
store: {path: var/cfmon.sqlite}
"""


def ask(cfmon: Run, formula: str, *more: str) -> tuple[int, str, str]:
    return cfmon("check", *ARGUMENTS, "--formula", formula, "--engine", "sampled", *more)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(
    ("formula", "code", "answer"),
    [
        ('@0.P=? [ F<=3 "unsafe" ]', 0, "value"),
        ('@1.P<=0.5 [ G<=3 !"unsafe" ]', 0, "holds"),
        ('@1.P>=0.5 [ G<=3 !"unsafe" ]', 1, "fails"),
        ('regret(bold@1, P>=0.5 [ G<=3 !"unsafe" ])', 1, "regret"),
        ('bold@2.P>=0.875 [ F<=2 "goal" ]', 3, "undecided"),
    ],
)
def test_the_exit_code_is_the_answer(cfmon: Run, formula: str, code: int, answer: str) -> None:
    limited = ("--samples", "40") if answer == "undecided" else ()
    got, out, err = ask(cfmon, formula, "--json", *limited)
    (verdict,) = json.loads(out)["verdicts"]
    assert (got, verdict["answer"], err) == (code, answer, "")
    assert verdict["method"] == "sampled"
    assert verdict["drawn"]["sampling"]["seed"] == 0
    assert all(quantity["samples"] > 0 and quantity["confidence"] == 0.95 for quantity in verdict["quantities"])


@pytest.mark.usefixtures("workdir")
def test_exact_answers_have_no_samples(cfmon: Run) -> None:
    _, out, _ = cfmon("check", *ARGUMENTS, "--formula", '@0.P=? [ F<=3 "unsafe" ]', "--json")
    (verdict,) = json.loads(out)["verdicts"]
    assert (verdict["method"], verdict["drawn"], verdict["reason"]) == ("exact", None, "")


@pytest.mark.usefixtures("workdir")
def test_the_settings_are_options(cfmon: Run) -> None:
    options: tuple[str, ...] = (
        "--seed",
        "3",
        "--alpha",
        "0.2",
        "--beta",
        "0.1",
        "--delta",
        "0.05",
        "--error",
        "0.3",
        "--samples",
        "77",
    )
    options = (*options, "--test", "paper")
    _, out, _ = ask(cfmon, '@0.P=? [ F<=3 "unsafe" ]', "--json", *options)
    sampling = json.loads(out)["verdicts"][0]["drawn"]["sampling"]
    expected = {"seed": 3, "alpha": 0.2, "beta": 0.1, "delta": 0.05, "error": 0.3, "limit": 77, "test": "paper"}
    assert {name: sampling[name] for name in expected} == expected
    code, out, err = ask(cfmon, '@0.P=? [ F<=3 "unsafe" ]', "--alpha", "2")
    assert (code, out) == (2, "")
    assert "sampling.alpha must lie strictly between 0 and 1, not 2" in err


@pytest.mark.usefixtures("workdir")
def test_the_table_says_how_sure_it_is(cfmon: Run) -> None:
    _, out, _ = ask(cfmon, 'bold@2.P>=0.5 [ F<=2 "goal" ]', "--seed", "9")
    for words in ("sampled", "samples", "with confidence 0.95", "sampled with seed 9", "with probability at most 0.01"):
        assert words in " ".join(out.split())
    _, out, _ = ask(cfmon, 'bold@2.P=? [ F<=2 "goal" ]', "--seed", "9")
    assert "sampled with seed 9" in out
    assert "probability" not in out
    _, out, _ = ask(cfmon, 'delta(bold,nominal)@2.P>=0.5 [ F<=2 "goal" ]', "--test", "paper")
    assert "not guaranteed for R and delta: test 'paper'" in " ".join(out.split())
    _, out, _ = ask(cfmon, 'bold@2.P>=0.875 [ F<=2 "goal" ]', "--samples", "40")
    assert "open after 40 samples (sampling.limit)" in " ".join(out.split())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    moves = [(s, 0, t, 0.5) for s in range(4) for t in (min(s + 1, 3), 4)]
    moves += [(s, 1, t, p) for s in range(4) for t, p in ((s, 0.9), (5, 0.1))]
    moves += [(s, a, s, 1.0) for s in (4, 5) for a in (0, 1)]
    model = MDP.from_transitions(states=6, actions=2, transitions=moves, labels={"lost": [4], "home": [5]})
    return write_project(tmp_path / "project", model, CONFIG)


def run(
    config: Path, environment: Mapping[str, str] | None = None
) -> tuple[list[tuple[str, bytes]], dict[str, bytes], dict[str, bytes]]:
    """What a sidecar publishes of four steps; evidence and objects by name."""
    loaded = assemble(config, environment or {})
    pipeline = loaded.pipeline("test")
    told: list[tuple[str, bytes]] = []
    evidence: dict[str, bytes] = {}
    events: list[Connected | Message | Evaluate] = [Connected(Instant(1000.0, 0.0), up=True)]
    for seq in range(4):
        now = Instant(1000.0 + seq, float(seq))
        payload = json.dumps({"v": 1, "episode": 0, "seq": seq, "state": seq, "action": 0}).encode()
        events += [Message(now, "agents/ada/steps", payload), Evaluate(now, latest_only=False)]
    for event in events:
        effects = pipeline.step(event)
        told += [(publication.topic, publication.payload) for publication in effects.publications]
        evidence |= {file.id: file.content for file in effects.evidence}
    return told, evidence, loaded.objects()


def test_a_configured_formula_is_sampled_and_gives_the_same_bytes_again(project: Path) -> None:
    told, evidence, _ = run(project)
    alerts = [json.loads(payload) for topic, payload in told if topic.startswith("cfmon/alerts")]
    assert [alert["method"] for alert in alerts] == ["sampled"] * len(alerts)
    assert "confidence 0.98" in alerts[0]["summary"]
    assert evidence
    assert (told, evidence) == run(project)[:2]


def test_the_evidence_of_a_sampled_alarm_is_verified_in_a_process_that_knows_only_the_files(
    project: Path, cfmon: Run
) -> None:
    _, evidence, objects = run(project)
    store = project.parent / "var"
    for folder, files in (("evidence", evidence), ("objects", objects)):
        (store / folder).mkdir(parents=True)
        for name, content in files.items():
            (store / folder / name).write_bytes(content)
    file = str(store / "evidence" / next(iter(evidence)))
    code, out, _ = cfmon("verify", file)
    assert code == 0
    assert "sampled  as test 1 of its stream, with seed " in out
    code, out, _ = cfmon("verify", file, "--json")
    document = json.loads(out)
    assert (code, document["disagreements"]) == (0, [])
    assert document["numbers"]["verdict.drawn.sampling.limit"] == 5000
    assert cfmon("explain", file, "-o", str(store / "alarm.svg"))[0] == 0
    assert "its figures are sampled, the curves exact" in (store / "alarm.svg").read_text()


def test_every_setting_of_the_file_is_used(project: Path) -> None:
    expected = Sampling(seed=5, alpha=0.02, beta=0.03, error=0.1, error_alpha=0.04, limit=5000, test="paper")
    for environment, seed in (({}, 5), ({"CFMON_SAMPLING__SEED": "6"}, 6)):
        _, evidence, _ = run(project, environment)
        drawn = [read_evidence(content).verdict.drawn for content in evidence.values()]
        assert drawn
        assert all(one is not None and one.sampling == replace(expected, seed=seed) for one in drawn)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("engine: sampled", "engine: fast", "line 6, formulas[0].engine"),
        (
            "engine: sampled",
            "engine: sampled\n    causal_model: any",
            "line 7, formulas[0].causal_model: sampling draws",
        ),
        ("seed: 5", "sed: 5", "line 7, sampling.sed: unknown key; did you mean 'seed'?"),
        ("alpha: 0.02", "alpha: 0", "line 7, sampling.alpha"),
        ("alpha: 0.02", "alpha: 0.98", "line 7, sampling.alpha: alpha and beta must sum to less than 1"),
        ("limit: 5000", "limit: 0", "line 7, sampling.limit"),
        ("test: paper", "test: t", "line 7, sampling.test"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_line(project: Path, old: str, new: str, says: str) -> None:
    project.write_text(CONFIG.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        load_config(project)
    assert says in str(raised.value)
