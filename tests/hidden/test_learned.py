"""Learned models whose states are hidden: drawn emissions, credible bands, and the band of the referee."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import monitor
from monitor.arrays import Floats
from monitor.errors import ModelError
from monitor.evaluation.models import load_any_policy
from monitor.evaluation.posterior import drawn_emissions
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.model.counts import EmissionCounts
from monitor.model.emissions import Emissions
from monitor.model.npz import canonical_bytes, read_model
from monitor.policy.controller import Policy
from monitor.policy.manifest import Output
from monitor.referee import derive
from monitor.types import Bands, BandSettings
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import NO_NETWORKS, NO_USES, NOT_FROM_START
from tests.hidden.learned import Truth
from tests.hidden.recurrent import hysteresis, write_recurrent
from tests.tiers import examples, heavy, scaled, slow

DRAWS = BandSettings(draws=39, seed=7)
QUERIES = (
    'P=? [ F<=3 "bad" ]',
    'other@2.P=? [ F<=3 "bad" ]',
    'do(1)@1.P=? [ G<=2 !"good" ]',
    'delta(other,nominal)@1.P=? [ F<=2 "bad" ]',
    'regret(other@2, P<0.5 [ F<=3 "bad" ])',
    'P>=0.5 [ F<=2 "bad" ] & !(other@1.P<0.2 [ X "good" ])',
)


def tables(rng: np.random.Generator, width: int, actions: int) -> dict[str, Floats]:
    return {name: rng.dirichlet(np.ones(actions), size=width) for name in ("nominal", "other")}


def assert_same_bands(found: monitor.Verdict, expected: monitor.Verdict, tolerance: float) -> None:
    assert found.outcome == expected.outcome
    for one, two in zip(found.quantities, expected.quantities, strict=True):
        assert one.value == pytest.approx(two.value, abs=tolerance)
        assert one.credible == pytest.approx(two.credible, abs=tolerance)
        assert one.extremes == (None if two.extremes is None else pytest.approx(two.extremes, abs=tolerance))
    for name in ("credible", "effect_credible", "credible_now"):
        ends = getattr(expected, name)
        assert getattr(found, name) == (None if ends is None else pytest.approx(ends, abs=tolerance)), name


@scaled
@heavy
def test_a_sensor_that_shows_the_state_gives_the_bands_of_states_that_are_seen() -> None:
    for seed in range(examples(2, 5)):
        rng = np.random.default_rng(seed)
        truth = Truth(rng, 3, 2, 2)
        model = replace(truth.learned(6, 5), emissions=None)
        policies = tables(rng, 4, 2)
        assert model.counts is not None
        path = [(state, action) for state, _, action in truth.episode(3)]
        recorded = [t in model.row(s, a)[0] and model.counts.order[s * 2 + a] > 0 for (s, a), (t, _) in pairwise(path)]
        if not all(recorded):
            path = path[:1]
        hidden = replace(model, emissions=Emissions.of_states(4, np.arange(4)))
        seen = {name: Policy(table, sees="state") for name, table in policies.items()}
        for query in QUERIES:
            expected = monitor.check(query, model=model, path=path, policies=policies, bands=DRAWS)
            assert expected.quantities[0].credible is not None
            for about in ({"model": hidden, "policies": policies}, {"model": model, "policies": seen}):
                found = monitor.check(query, path=path, bands=DRAWS, **about)  # type: ignore[arg-type]
                assert_same_bands(found, expected, 1e-9)


@scaled
@heavy
def test_the_referee_derives_the_same_bands() -> None:
    compared = 0
    for seed in range(examples(2, 4)):
        rng = np.random.default_rng(seed)
        truth = Truth(rng, 2, 2, 3)
        model, policies = truth.learned(3, 4, emissions=bool(seed % 4 != 3)), tables(rng, 3, 2)
        if seed % 3 == 1:
            policies["other"] = Policy(rng.dirichlet(np.ones(2), size=3), sees="state")  # type: ignore[assignment]
        path: list[Any] = [(shown, action) for _, shown, action in truth.episode(3)]
        path[1] = (None, path[1][1])
        for query in QUERIES:
            about: dict[str, Any] = {"model": model, "path": path, "policies": policies}
            try:
                found = monitor.check(query, bands=DRAWS, **about)
            except monitor.PathError:
                continue  # impossible, as far as was recorded
            expected = derive(query, credible=DRAWS, **about)
            assert found.quantities[0].credible is not None
            assert found.bands == expected.bands == Bands(39, 7, 0.95, reason=NO_USES)
            assert_same_bands(found, expected, 1e-9)
            compared += 1
    assert compared


@heavy
def test_the_order_of_other_models_does_not_matter_to_the_bands() -> None:
    rng = np.random.default_rng(2)
    truth = Truth(rng, 2, 2, 3)
    model, *others = (truth.learned(3, 4) for _ in range(3))
    about: dict[str, Any] = {"model": model, "policies": tables(rng, 3, 2)}
    about["path"] = [(shown, action) for _, shown, action in truth.episode(3)]
    query, found = 'model:z@0.P=? [ F<=3 "bad" ]', []
    for names in (("z", "a"), ("a", "z")):
        by_name = dict(zip(("z", "a"), others, strict=True))
        about["models"] = {name: by_name[name] for name in names}
        found += [monitor.check(query, bands=DRAWS, **about), derive(query, credible=DRAWS, **about)]
    for other in found[1:]:
        assert_same_bands(other, found[0], 1e-9)


def test_a_recurrent_network_has_no_band_in_the_engine_and_in_the_referee(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    truth = Truth(rng, 2, 2, 3)
    model = truth.learned(3, 4)
    output = Output(name="logits", kind="logits")
    network = write_recurrent(tmp_path / "net.yaml", hysteresis((0.1, 0.9), "lower keep raise"), output)
    about: dict[str, Any] = {"model": model, "policies": {"nominal": load_any_policy(network, model).table}}
    about["path"] = [(shown, action) for _, shown, action in truth.episode(2)]
    for found in (monitor.check(QUERIES[0], bands=DRAWS, **about), derive(QUERIES[0], credible=DRAWS, **about)):
        assert found.quantities[0].credible is None
        assert found.bands == Bands(39, 7, 0.95, reason=NO_NETWORKS)


@heavy
def test_a_longer_path_costs_only_its_new_pairs_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    beliefs = HiddenChecker.beliefs

    def counted(self: HiddenChecker, path: PathPairs, *rest: Any) -> Any:  # noqa: ANN401 - as it is
        read.append(len(path))
        return beliefs(self, path, *rest)

    monkeypatch.setattr(HiddenChecker, "beliefs", counted)
    rng = np.random.default_rng(4)
    truth = Truth(rng, 3, 2, 2)
    model, policies = truth.learned(30, 6), tables(rng, 2, 2)
    path = [(shown, action) for _, shown, action in truth.episode(6)]
    spec = monitor.FormulaSpec("bad", 'regret(other@1, P<0.01 [ F<=3 "bad" ])', bands="always")
    settings = monitor.StreamSettings(window=6, reorder_wait=0.0, reorder_steps=1)
    watching = monitor.Monitor(model, policies, [spec], settings, bands=DRAWS)
    for seq, (shown, action) in enumerate([*path, *path[:2]]):
        now = monitor.Instant(1000.0 + seq, float(seq))
        read.clear()
        watching.observe(monitor.Observation("a", "e", seq, action=action, observation=shown), now)
        notices = watching.evaluate(now)
        verdicts = [each.verdict for each in notices if isinstance(each, monitor.types.Judged)]
        assert len(verdicts) == 1
        if seq >= 6:
            assert verdicts[0].credible is None
            assert verdicts[0].bands == Bands(39, 7, 0.95, reason=NOT_FROM_START), "the first pair has left the window"
            continue
        assert read
        assert max(read) <= 2, "the newest known pair, and the new one"
        whole = monitor.check(spec.text, model=model, path=path[: seq + 1], policies=policies, bands=DRAWS)
        assert_same_bands(verdicts[0], whole, 1e-12)


def test_a_belief_that_is_given_has_no_band() -> None:
    rng = np.random.default_rng(4)
    truth = Truth(rng, 2, 2, 2)
    model, policies = truth.learned(30, 6), tables(rng, 2, 2)
    for path, start in (([(0, 0, (0.0, 0.5, 1.0, 0.5))], True), ([(0, 0)], False)):
        about: dict[str, Any] = {"model": model, "path": path, "policies": policies, "start_observed": start}
        found = monitor.check('P=? [ F<=2 "bad" ]', bands=DRAWS, **about)
        expected = derive('P=? [ F<=2 "bad" ]', credible=DRAWS, **about)
        assert found.credible is None
        assert found.bands == expected.bands == Bands(39, 7, 0.95, reason=NOT_FROM_START)


def some_emissions() -> Emissions:
    """State 0 showed 0 five times and 1 twice, state 1 showed 2 once; state 2 has no record, and 3 is an end."""
    rows = [(0, 0, 5.5 / 8), (0, 1, 2.5 / 8), (1, 2, 1.0), (2, 0, 1 / 3), (2, 1, 1 / 3), (2, 2, 1 / 3), (3, 3, 1.0)]
    counts = EmissionCounts(np.array([5, 2, 1, 0, 0, 0, 0]), np.array([6, 4, 0, 0, 0, 0, 0]))
    return Emissions.from_tuples(4, 4, rows).learned(counts)


def test_emissions_are_drawn_from_the_posterior() -> None:
    emissions = some_emissions()
    found = list(islice(drawn_emissions(emissions, np.random.default_rng(5)), 4000))
    tables = np.zeros((len(found), 4, 4))
    for number, each in enumerate(found):
        assert each is not None
        for state in range(4):
            seen, chances = each.row(state)
            tables[number, state, seen] = chances
    assert np.allclose(tables.sum(axis=2), 1.0)
    assert np.all(tables[:, :3, 3] == 0.0), "nothing that goes on shows an end"
    assert np.all(tables[:, 3, 3] == 1.0)
    known = tables[:, 0, :2] / tables[:, 0, :2].sum(axis=1, keepdims=True)
    assert np.allclose(known.mean(axis=0), [5.5 / 8, 2.5 / 8], atol=0.02)
    assert np.allclose(known.var(axis=0), 5.5 * 2.5 / 64 / 9, rtol=0.15)
    assert np.allclose(tables[:, 2, :3].mean(axis=0), 1 / 3, atol=0.03), "the prior"
    assert np.allclose(tables[:, 2, 0].var(), (1 / 3) * (2 / 3) / 2, rtol=0.15)
    # The next draw of state 0 is in the class of draws 5 to 8, counted with draws 3 and 4: 1 of these 5 was new.
    assert tables[:, 0, 2].mean() == pytest.approx(1.5 / 6, rel=0.05)
    assert tables[:, 1, 0].mean() == pytest.approx(tables[:, 1, 1].mean(), abs=0.03), "both others are alike"
    again = next(drawn_emissions(replace(emissions, counts=None), np.random.default_rng(5)))
    assert again is not None
    assert again.probabilities is emissions.probabilities, "given ones are not drawn"


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ("visits", [5, 2, 1, 1, 0, 0, 0], "state 2 has an observation that it never showed"),
        ("visits", [4, 2, 1, 0, 0, 0, 0], "state 0 has more draws since an outcome was seen than draws"),
        ("since", [6, 5, 1, 0, 0, 0, 0], "state 1 has more draws since"),
        ("since", [6, 4, 0, 1, 0, 0, 0], "state 2 has draws since an observation but no visits"),
        ("since", [6, 4, 0], "emission_since has 3 entries, not 7"),
        ("prior", 0.0, "prior is 0.0; give a pseudo-count above 0"),
        ("prior", 3.0, "state 0 is not the posterior mean of its counts"),
    ],
)
def test_counts_that_no_recording_gives_are_refused(place: str, value: Any, problem: str) -> None:  # noqa: ANN401
    emissions = some_emissions()
    assert emissions.counts is not None
    given: Any = np.array(value) if isinstance(value, list) else value
    altered: dict[str, Any] = {place: given}
    with pytest.raises(ModelError, match=problem):
        emissions.learned(replace(emissions.counts, **altered))


def test_counts_survive_the_file() -> None:
    model = Truth(np.random.default_rng(1), 3, 2, 3).learned(4, 5)
    again = read_model(canonical_bytes(model), "test")
    assert model.emissions is not None
    assert model.emissions.counts is not None
    assert again.emissions is not None
    assert again.emissions.counts is not None
    for name in ("visits", "since"):
        assert np.array_equal(getattr(again.emissions.counts, name), getattr(model.emissions.counts, name))
        assert not getattr(again.emissions.counts, name).flags.writeable
    assert again.emissions.counts.prior == 1.0
    assert canonical_bytes(again) == canonical_bytes(model)


@slow
@heavy
def test_bands_hold_the_truth_as_often_as_they_say_and_would_not_with_known_emissions() -> None:
    """With the right level, a band of 95 % holds the truth in fewer than 33 of 40 worlds with probability 0.07 %."""
    fewest = int(binom.ppf(0.003, 40, 0.95))
    assert fewest == 33
    assert sum(holds_truth(seed, emissions=True) for seed in range(40)) >= fewest
    assert sum(holds_truth(seed, emissions=False) for seed in range(40)) < fewest


def holds_truth(seed: int, *, emissions: bool) -> bool:
    """Return whether the band on a learned model has the value on the true model."""
    rng = np.random.default_rng((seed, 17))
    truth = Truth(rng, 3, 2, 3)
    policies = tables(rng, 3, 2)
    model = truth.learned(30, 6, emissions=emissions, often=0.1)
    bands = BandSettings(draws=39, seed=seed)
    while True:
        path = [(shown, action) for _, shown, action in truth.episode(4, list(policies["nominal"]))]
        about: dict[str, Any] = {"path": path, "policies": policies}
        try:
            found = monitor.check('other@3.P=? [ F<=3 "bad" ]', model=model, bands=bands, **about)
        except monitor.PathError:
            continue  # impossible, as far as was recorded
        value = monitor.check('other@3.P=? [ F<=3 "bad" ]', model=truth.model(), **about).value
        assert found.credible is not None
        assert value is not None
        return found.credible[0] <= value <= found.credible[1]
