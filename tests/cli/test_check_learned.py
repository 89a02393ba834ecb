"""`cfmon check` on a model learned from data: bands in the table and in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.model import save_model
from tests.exact.learned import learned_model

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draws = [(0, 0, 0)] * 9 + [(0, 0, 1)] + [(0, 1, 0)] * 10
    model, _ = learned_model(3, 2, draws, {"bad": frozenset({1, 2})})
    save_model(model, tmp_path / "model.npz")
    (tmp_path / "path.json").write_text("[[0, 0], [0, 0]]")
    (tmp_path / "walk.json").write_text("[0, 0, 0]")
    (tmp_path / "crawl.json").write_text("[1, 1, 1]")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(cfmon: Run, formula: str, *more: str) -> tuple[int, str, str]:
    policies = ("--policy", "nominal=walk.json", "--policy", "crawl=crawl.json")
    return cfmon("check", "--model", "model.npz", "--path", "path.json", *policies, "--formula", formula, *more)


REGRET = 'regret(crawl@1, P>=0.8 [ G<=3 !"bad" ])'


@pytest.mark.usefixtures("folder")
def test_the_table_has_the_bands_and_how_they_were_obtained(cfmon: Run) -> None:
    code, out, _ = ask(cfmon, REGRET, "--causal-model", "any")
    assert code == 1
    text = " ".join(out.split())
    assert "credible (0.95) [" in text
    assert "guaranteed [" in text
    assert "another model in the guaranteed band could change this" in text
    assert "rests on at least 10 visits" in text
    assert "to narrow it, visit: action 0 in state 0" in text
    assert "64 models drawn from the posterior with seed 0" in text
    assert "with probability 0.95" in text


@pytest.mark.usefixtures("folder")
def test_json_has_them_too(cfmon: Run) -> None:
    _, out, _ = ask(cfmon, REGRET, "--causal-model", "any", "--json", "--draws", "39", "--seed", "4")
    (verdict,) = json.loads(out)["verdicts"]
    how = {"draws": 39, "seed": 4, "level": 0.95, "delta": 0.05, "reason": "", "fits": 0, "doubt": ""}
    assert verdict["bands"] == how
    assert verdict["support"] == 10
    assert len(verdict["quantities"][0]["credible"]) == 2
    assert verdict["credible"] == verdict["quantities"][1]["credible"]


@pytest.mark.usefixtures("folder")
def test_without_draws_there_is_no_credible_band(cfmon: Run) -> None:
    _, out, _ = ask(cfmon, REGRET, "--json", "--draws", "0")
    (verdict,) = json.loads(out)["verdicts"]
    assert "bands" not in verdict
    assert "credible" not in verdict["quantities"][0]
    _, text, _ = ask(cfmon, REGRET, "--draws", "0", "--causal-model", "any")
    assert "credible" not in text
    assert "guaranteed" in text


UNKNOWN = 'regret(crawl@1, P>=0.97 [ G<=3 !"bad" ])'


@pytest.mark.usefixtures("folder")
def test_what_was_never_recorded_is_shown_as_an_interval(cfmon: Run) -> None:
    """After the step into state 1 nothing was recorded, and bad there is its label, not its future."""
    code, out, _ = ask(cfmon, 'crawl@0.P=? [ F[2,3] "bad" ]', "--draws", "0", "--json")
    assert code == 0
    (verdict,) = json.loads(out)["verdicts"]
    assert verdict["quantities"][0]["extremes"] == [0.0, 0.0]
    code, out, _ = ask(cfmon, 'P>=0.3 [ F=3 "bad" ]', "--draws", "0")  # .10 to .36
    text = " ".join(out.split())
    assert (code, "at both extremes of what was never recorded" in text) == (3, True)
    assert "what was never recorded decides it" in text


@pytest.mark.usefixtures("folder")
def test_visits_says_what_to_record_for_a_narrower_band(cfmon: Run) -> None:
    code, out, _ = ask(cfmon, UNKNOWN, "--causal-model", "any", "--visits", "0.5")
    assert code == 1
    text = " ".join(out.split())
    assert "visits: the guaranteed band is" in text
    assert "bring it to 0.5" in text
    assert "action 0 in state 0: 10 so far" in text
    _, out, _ = ask(cfmon, UNKNOWN, "--json", "--visits", "0.5")
    (verdict,) = json.loads(out)["verdicts"]
    assert verdict["visits"]["width"] == 0.5
    assert [0, 0, 10] in verdict["visits"]["pairs"]
    assert "no more than 1" in ask(cfmon, UNKNOWN, "--visits", "1")[1]
    assert "causal models alone leave" in " ".join(ask(cfmon, UNKNOWN, "--visits", "1e-9")[1].split())
    code, _, err = ask(cfmon, UNKNOWN, "--visits", "0")
    assert (code, "a width must be above 0" in err) == (2, True)


@pytest.mark.usefixtures("folder")
def test_a_band_that_cannot_be_had_says_why(cfmon: Run) -> None:
    _, text, _ = ask(cfmon, 'crawl@1.P>=0.1 [ F<=2 (P>0.5 [ X "bad" ]) ]', "--causal-model", "any")
    assert "no guaranteed band: quantities are nested" in " ".join(text.split())


@pytest.mark.usefixtures("folder")
def test_too_few_draws_are_refused(cfmon: Run) -> None:
    code, _, err = ask(cfmon, REGRET, "--draws", "10")
    assert code == 2
    assert "draw at least 39" in err


@pytest.mark.usefixtures("folder")
def test_the_error_rate_of_the_guaranteed_band_is_an_option(cfmon: Run) -> None:
    outs = [
        ask(cfmon, REGRET, "--causal-model", "any", "--json", "--draws", "0", "--band-delta", rate)[1]
        for rate in ("0.5", "0.001")
    ]
    loose, strict = (json.loads(out)["verdicts"][0] for out in outs)
    assert (loose["bands"]["delta"], strict["bands"]["delta"]) == (0.5, 0.001)
    assert strict["guaranteed"][0] < loose["guaranteed"][0]
    code, _, err = ask(cfmon, REGRET, "--band-delta", "0")
    assert code == 2
    assert "bands.delta must lie strictly between 0 and 1, not 0" in err


@pytest.mark.usefixtures("folder")
def test_the_second_evaluator_has_the_same_guaranteed_band(cfmon: Run) -> None:
    options = ("--causal-model", "any", "--json", "--draws", "0", "--band-delta", "0.2")
    outs = [ask(cfmon, REGRET, *options, "--engine", engine)[1] for engine in ("exact", "referee")]
    one, two = (json.loads(out)["verdicts"][0] for out in outs)
    assert one["bands"] == two["bands"]
    assert two["guaranteed"] == pytest.approx(one["guaranteed"], abs=1e-9)
    assert two["robust"] == one["robust"]
