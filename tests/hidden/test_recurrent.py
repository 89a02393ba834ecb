"""Recurrent networks that imitate controllers have the controllers' answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

import monitor
from monitor.hidden import filtering, network_values, pair_chain, readings
from monitor.policy import recurrent
from monitor.policy.manifest import Output
from monitor.referee import derive
from monitor.types import Instant, Observation
from tests.hidden.recurrent import hysteresis, previous, write_recurrent
from tests.tiers import slow

LOGITS, CHANCES = Output(name="logits", kind="logits"), Output(name="chances", kind="probabilities")
SIGNALS = STATES = 3
QUERIES = (
    'other@{t}.P=? [ F<=3 "bad" ]',
    "other@{t}.R=? [ C<=3 ]",
    'nominal@{t}.P=? [ "good" U[1,3] "bad" ]',
    "delta(other,nominal)@{t}.R=? [ C[1,2] ]",
    'do(1)@{t}.P=? [ G<=2 !"bad" ]',
    'model:icy@{t}.P=? [ F<=2 "bad" ]',
    'regret(other@{t}, P<0.5 [ F<=3 "bad" ])',
)


def latch(chances: tuple[float, float], memory: str) -> monitor.Controller:
    """Return the controller that `hysteresis` imitates: 0 is the middle, 1 lowered, 2 raised."""
    choice = [[[1 - chances[m == 2], chances[m == 2]]] * SIGNALS for m in range(3)]
    following = [[1, m, 2] for m in range(3)]
    return monitor.Controller(choice, following, memory=memory)  # type: ignore[arg-type]


def stack(table: Any, memory: str) -> monitor.Controller:  # noqa: ANN401 - an array
    """Return the controller that `previous` imitates: it remembers the last two readings."""
    choice = [[table[m // SIGNALS, m % SIGNALS]] * SIGNALS for m in range(SIGNALS**2)]
    following = [[m % SIGNALS * SIGNALS + z for z in range(SIGNALS)] for m in range(SIGNALS**2)]
    return monitor.Controller(choice, following, memory=memory)  # type: ignore[arg-type]


def both(folder: Path, rng: np.random.Generator) -> tuple[Path, monitor.Controller]:
    """Return a random network in a file, and the controller that it imitates."""
    memory = str(rng.choice(["shadow", "reset"]))
    if rng.random() < 0.5:
        chances = float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.05, 0.95))
        logits = [np.float64(np.float32(np.log(each / (1 - each)))) for each in chances]
        exact = [1 / (1 + np.exp(-each)) for each in logits]  # of the 32 bits that the file has
        path = write_recurrent(folder / f"gru{rng.integers(1 << 30)}.yaml", hysteresis(chances), LOGITS, memory=memory)
        return path, latch((exact[0], exact[1]), memory)
    table = rng.integers(1, 16, size=(SIGNALS, SIGNALS, 1)) / 16
    table = np.concatenate([table, 1 - table], axis=2)
    path = write_recurrent(folder / f"last{rng.integers(1 << 30)}.yaml", previous(table), CHANCES, memory=memory)
    return path, stack(table, memory)


def world(rng: np.random.Generator, *, hidden: bool) -> tuple[monitor.MDP, monitor.MDP]:
    """Return two random models, one for `model:icy`."""
    about: dict[str, Any] = {"states": STATES, "actions": 2, "labels": {"bad": [0], "good": [1, 2]}}
    about["rewards"] = [
        (s, a, s2, float(rng.normal())) for s in range(STATES) for a in range(2) for s2 in range(STATES)
    ]
    if hidden:
        shown = rng.dirichlet(np.ones(SIGNALS), size=STATES)
        about |= {"initial": {0: 0.25, 2: 0.75}, "signals": SIGNALS}
        about["emissions"] = [(*i, shown[i]) for i in np.ndindex(shown.shape)]
    rows = [rng.dirichlet(np.ones(STATES), size=(STATES, 2)) for _ in range(2)]
    one, other = (
        monitor.MDP.from_transitions(transitions=[(*i, row[i]) for i in np.ndindex(row.shape)], **about) for row in rows
    )
    return one, other


def assert_same(one: monitor.Verdict, other: monitor.Verdict) -> None:
    assert one.outcome == other.outcome
    assert one.evidence == pytest.approx(other.evidence, abs=1e-9)
    values = [quantity.value for quantity in one.quantities]
    assert values == pytest.approx([quantity.value for quantity in other.quantities], abs=1e-9)
    assert one.belief == pytest.approx(other.belief, abs=1e-9)


def verdicts(watching: monitor.Monitor, step: Observation) -> list[monitor.Verdict]:
    """Send a step, and return the verdicts that come of it."""
    now = Instant(float(step.seq), float(step.seq))
    notices = [*watching.observe(step, now), *watching.evaluate(now)]
    return [notice.verdict for notice in notices if isinstance(notice, monitor.types.Judged)]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=slow) for seed in range(3, 40))])
def test_a_network_that_imitates_a_controller_has_its_answers(seed: int, hidden: bool, tmp_path: Path) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    model, icy = world(rng, hidden=hidden)
    pairs = {name: both(tmp_path, rng) for name in ("nominal", "other")}
    seen = [int(rng.integers(SIGNALS)) if rng.random() < 0.8 or not hidden else None for _ in range(rng.integers(1, 5))]
    path = [(each, int(rng.integers(2))) for each in seen]
    terminated = bool(rng.random() < 0.3)
    for query in QUERIES:
        text = query.format(t=int(rng.integers(0, 4)))
        asked: dict[str, Any] = {"model": model, "path": path, "models": {"icy": icy}, "terminated": terminated}
        found = monitor.check(text, policies={name: file for name, (file, _) in pairs.items()}, **asked)
        wanted = monitor.check(text, policies={name: controller for name, (_, controller) in pairs.items()}, **asked)
        assert_same(found, wanted)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=slow) for seed in range(1, 10))])
def test_the_referee_has_the_same_verdicts(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model, icy = world(rng, hidden=seed % 2 == 0)
    files = {name: both(tmp_path, rng)[0] for name in ("nominal", "other")}
    readers = {name: monitor.evaluation.models.load_any_policy(file, model).table for name, file in files.items()}
    path = [(int(rng.integers(SIGNALS)), int(rng.integers(2))) for _ in range(4)]
    for query in QUERIES:
        asked: dict[str, Any] = {"model": model, "path": path, "models": {"icy": icy}, "policies": readers}
        text = query.format(t=2)
        assert_same(monitor.check(text, **asked), derive(text, **asked))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_network_that_acted_is_no_obstacle_to_bounds_but_one_that_would_act_is(hidden: bool, tmp_path: Path) -> None:  # noqa: FBT001
    model, icy = world(np.random.default_rng(0), hidden=hidden)
    network, twin = both(tmp_path, np.random.default_rng(0))
    asked: dict[str, Any] = {"model": model, "models": {"icy": icy}, "path": [(0, 0), (1, 1), (0, 0), (1, 1)]}
    text = 'other@3.P=? [ F=3 "bad" ]'
    found, wanted = (
        monitor.check(text, policies={"nominal": each, "other": [1] * 3}, causal_model="any", **asked)
        for each in (network, twin)
    )
    assert found.bounds == pytest.approx(wanted.bounds, abs=1e-9)
    assert found.bounds is not None
    assert found.bounds[1] > found.bounds[0] + 1e-3
    for refused, acting in (
        (text, {"nominal": [0] * 3, "other": network}),
        ('model:icy@3.P=? [ F=3 "bad" ]', {"nominal": network}),
    ):
        with pytest.raises(monitor.LimitError, match="a recurrent network acts in the counterfactual world"):
            monitor.check(refused, policies=acting, causal_model="any", **asked)
        now = monitor.check(refused.replace("@3", "@0"), policies=acting, causal_model="any", **asked)
        assert now.bounds == (now.value, now.value)


def test_on_the_stream_a_belief_has_what_networks_remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "MAX_MEMORIES", 3)  # the table begins anew again and again
    rng = np.random.default_rng(3)
    model, _ = world(rng, hidden=True)
    (one, nominal), (two, other) = both(tmp_path, rng), both(tmp_path, rng)
    text = 'other@2.P=? [ F<=3 "bad" ]'
    watching = [
        monitor.Monitor(model, policies, [text], monitor.StreamSettings(window=4))
        for policies in ({"nominal": one, "other": two}, {"nominal": nominal, "other": other})
    ]
    for seq in range(12):
        shown = None if seq % 5 == 3 else int(rng.integers(SIGNALS))
        step = Observation("a", 1, seq, action=int(rng.integers(2)), observation=shown)
        found, wanted = (verdicts(each, step) for each in watching)
        assert len(found) == len(wanted) == 1
        assert_same(found[0], wanted[0])


def test_what_may_be_remembered_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    model, _ = world(rng, hidden=True)
    policies = {"nominal": [0, 1, 0], "other": both(tmp_path, rng)[0]}
    path = [(None, 0), (None, None), (1, 1)]
    with monkeypatch.context() as patched:
        patched.setattr(network_values, "MAX_PAIRS", 5)
        with pytest.raises(monitor.errors.LimitError, match=r"lie ahead .*shorter horizon"):
            monitor.check('other@0.P=? [ F<=3 "bad" ]', model=model, path=path, policies=policies)
    with monkeypatch.context() as patched:
        patched.setattr(pair_chain, "MAX_NODES", 5)
        with pytest.raises(monitor.errors.LimitError, match=r"possible courses .*smaller offset"):
            monitor.check('other@2.P=? [ F<=3 "bad" ]', model=model, path=path, policies=policies)
    with monkeypatch.context() as patched:
        patched.setattr(filtering, "MAX_PLACES", 5)
        with pytest.raises(monitor.errors.LimitError, match="observations are missing"):
            monitor.check('other@0.P=? [ F<=3 "bad" ]', model=model, path=path, policies=policies)
    with monkeypatch.context() as patched:
        patched.setattr(readings, "MOST_MEMORIES", 2)
        with pytest.raises(monitor.errors.LimitError, match="more than 2 different things"):
            monitor.check('other@0.P=? [ F<=3 "bad" ]', model=model, path=path, policies=policies)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"states": [{"input": "h", "output": "h_out"}]}, r"inputs are \['seen', 'h_in'\], the manifest names"),
        ({"states": [{"input": "h_in", "output": "h"}]}, "there is no 'h'"),
        ({"states": [{"input": "h_in", "output": "logits"}]}, "names one output twice"),
        ({"states": []}, "at least 1"),
        ({"input": {"name": "seen", "kind": "index"}}, r"tensor\(float\), not one of tensor\(int64\)"),
        (
            {"output": {"name": "h_out", "kind": "logits"}, "states": [{"input": "h_in", "output": "logits"}]},
            "not 1 finite numbers",
        ),
        ({"mask": True, "output": {"name": "logits", "kind": "action"}, "mode": "greedy"}, "mask needs scores"),
        ({"sees": "nothing"}, "Input should be 'observation' or 'state'"),
    ],
)
def test_manifests_that_do_not_fit_the_network(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    path = write_recurrent(tmp_path / "p.yaml", hysteresis((0.2, 0.8)), LOGITS)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **fields}))
    model, _ = world(np.random.default_rng(1), hidden=True)
    with pytest.raises(monitor.PolicyError, match=why):
        monitor.check('P=? [ F<=3 "bad" ]', model=model, path=[(0, 0)], policies={"nominal": path})


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=slow) for seed in range(6, 26))])
def test_what_it_remembers_outlives_a_restart(seed: int, tmp_path: Path) -> None:
    """To the bit: sums run in an order that does not depend on which memories arose first."""
    rng = np.random.default_rng(seed)
    model, _ = world(rng, hidden=True)
    files = {"nominal": both(tmp_path, rng)[0], "other": both(tmp_path, rng)[0]}
    one, two = (  # each reads the networks for itself, and numbers their memories as they arise
        monitor.Monitor(model, files, ['other@2.P=? [ F<=3 "bad" ]'], monitor.StreamSettings(window=4))
        for _ in range(2)
    )
    steps = [Observation("a", 1, seq, action=seq % 2, observation=int(rng.integers(SIGNALS))) for seq in range(10)]
    for step in steps[:6]:
        verdicts(one, step)
    saved = one.save(everything=True)
    two.load(msgspec.msgpack.decode(msgspec.msgpack.encode(saved), type=type(saved)))
    for step in steps[6:]:
        assert verdicts(one, step) == verdicts(two, step)
