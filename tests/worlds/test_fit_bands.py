"""Credible bands of learned worlds with numbers: against fits simulated in plain numpy, and what has no answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.arrays import Floats, Ints
from monitor.errors import ConfigError, ModelError
from monitor.evaluation.procedures import DRAWS
from monitor.types import Bands, BandSettings, Sampling, Verdict
from tests.worlds.samples import Basin

SHUT = 0
PATH = [([5.0], SHUT), ([6.1], SHUT), ([6.8], SHUT), ([7.9], SHUT)]
POLICIES = {
    "nominal": lambda x: np.zeros(len(x), dtype=np.int64),
    "careful": lambda x: (x[:, 0] > 6.5).astype(np.int64),
}


def basin(count: int = 16, **more: Any) -> Basin:
    """A basin and fits around it."""
    rng = np.random.default_rng(1)
    fits = [Basin(rng.normal(0.93, 0.01), rng.normal(1.5, 0.1), rng.uniform(0.25, 0.35)) for _ in range(count)]
    return Basin(0.93, 1.5, 0.3, fits=fits, **more)


def ask(text: str, model: Any = None, **more: Any) -> Verdict:
    given: dict[str, Any] = {"model": model or basin(), "path": PATH, "policies": POLICIES} | more
    return monitor.check(text, **given)


def level_reached(fit: Basin, policy: Callable[[Floats], Ints], steps: int) -> float:
    """The level after held steps, by arithmetic: what was observed is what the fit's mean and the noise gave."""
    x = np.array([[PATH[0][0][0]]])
    for (before, taken), (after, _) in pairwise(PATH[: steps + 1]):
        noise = after[0] - (fit.keep * before[0] + 1.5 - fit.out * taken)
        x = np.array([[fit.keep * x[0, 0] + 1.5 - fit.out * float(policy(x)[0]) + noise]])
    return float(x[0, 0])


def test_the_band_of_an_exact_answer_is_that_of_the_fits_own_paths() -> None:
    world = basin()
    verdict = ask("careful@3.R=? [ C<=2 ]", world)
    # rewards are levels: the sum of three held steps
    sums = [sum(level_reached(fit, POLICIES["careful"], k) for k in (1, 2, 3)) for fit in world.fits]
    assert verdict.method == "exact"
    assert verdict.credible == pytest.approx((min(sums), max(sums)))
    assert verdict.quantities[0].credible == verdict.credible
    assert verdict.bands == Bands(level=15 / 17, fits=16)
    assert verdict.drawn is None
    own = ask("@3.R=? [ C<=2 ]", world)
    assert own.credible == pytest.approx((6.1 + 6.8 + 7.9,) * 2), "what happened is not open"


def test_the_band_of_a_drawn_answer_is_that_of_simulations_of_each_fit() -> None:
    world = basin()
    verdict = ask('careful@3.P=? [ F<=8 "overflow" ]', world)
    rng, shares = np.random.default_rng(5), []
    for fit in world.fits:
        level = np.full(200_000, level_reached(fit, POLICIES["careful"], 3))
        over = np.zeros(len(level), dtype=np.bool_)
        for _ in range(5):
            level = fit.keep * level + 1.5 - fit.out * (level > 6.5) + fit.s * rng.normal(size=len(level))
            over |= level >= 8.0
        shares.append(over.mean())
    assert verdict.credible is not None
    assert max(shares) - min(shares) > 0.02
    error = 6 * np.sqrt(np.array(shares) * (1 - np.array(shares)) / DRAWS)  # three for the draws, three in the band
    assert min(shares - error) <= verdict.credible[0] <= min(shares)
    assert max(shares) <= verdict.credible[1] <= max(shares + error)


def test_the_effect_is_that_of_each_fit_and_not_a_difference_of_bands() -> None:
    verdict = ask('regret(careful@0, P>=0.9 [ G<=3 !"overflow" ])', path=PATH[:1])
    own, other = (quantity.credible for quantity in verdict.quantities)
    assert own is not None
    assert other is not None
    assert verdict.credible == other
    assert verdict.effect_credible is not None
    assert verdict.effect_credible[1] - verdict.effect_credible[0] < (own[1] - own[0]) + (other[1] - other[0])
    delta = ask('delta(careful, nominal)@0.P=? [ G<=3 !"overflow" ]', path=PATH[:1])
    assert delta.credible == pytest.approx(verdict.effect_credible)


def test_where_only_fits_need_noise_the_verdict_says_how_to_draw_it_again() -> None:
    """The observed path overflows in the world's own counterfactual; in some fits nothing is decided by then."""
    near = Basin(0.93, 1.5, 0.3, fits=[Basin(0.93, out, 0.3) for out in np.linspace(-1.0, 1.0, 16)])
    world = Basin(0.93, -1.0, 0.3, fits=near.fits)
    found = ask('careful@3.P=? [ F<=5 "overflow" ]', world, sampling=Sampling(seed=4))
    assert (found.method, found.value) == ("exact", 1.0)
    assert found.credible is not None
    assert found.credible[0] < 0.5
    assert found.drawn is not None
    assert ask('careful@3.P=? [ F<=5 "overflow" ]', world, drawn=found.drawn) == found


def test_a_fit_that_cannot_explain_a_held_step_has_no_answer() -> None:
    """The steps of `PATH` need noise of up to 1.3 standard deviations."""
    fits = [Basin(0.93, 1.5, 0.3, reach=0.5), *(Basin(0.93, 1.5, 0.3 + n / 100) for n in range(4))]
    verdict = ask('careful@3.P=? [ F<=8 "overflow" ]', Basin(0.93, 1.5, 0.3, fits=fits))
    assert verdict.bands is not None
    assert (verdict.bands.fits, verdict.bands.level) == (5, 3 / 5), "four fits answered"
    assert verdict.bands.reason.startswith("1 of 5 fits have no answer: the noise of the step from level=")
    without = ask('careful@3.P=? [ F<=8 "overflow" ]', Basin(0.93, 1.5, 0.3, fits=fits[1:]))
    assert verdict.credible == without.credible
    now = ask('P=? [ F<=8 "overflow" ]', Basin(0.93, 1.5, 0.3, fits=fits))
    assert now.bands == Bands(level=4 / 6, fits=5), "nothing is held, so nothing must be explained"


def test_without_two_answers_there_is_no_band() -> None:
    fits = [Basin(0.93, 1.5, 0.3, reach=0.5), Basin(0.93, 1.5, 0.3), Basin(0.93, 1.5, 0.3, reach=0.6)]
    verdict = ask('careful@3.P=? [ F<=8 "overflow" ]', Basin(0.93, 1.5, 0.3, fits=fits))
    assert verdict.credible is None
    assert verdict.bands is not None
    assert verdict.bands.reason.startswith("no credible band; 2 of 3 fits have no answer")


@pytest.mark.parametrize(
    ("count", "settings", "level"),
    [
        (16, {}, 15 / 17),
        (39, {}, 0.95),
        (50, {}, 0.95),
        (16, {"level": 0.5}, 0.5),
        (16, {"draws": 9, "level": 0.8}, 0.8),
    ],
)
def test_its_level_is_what_so_many_fits_can_have(count: int, settings: dict[str, Any], level: float) -> None:
    verdict = ask("careful@3.R=? [ C<=2 ]", basin(count), bands=BandSettings(**settings))
    assert verdict.bands == Bands(level=level, fits=min(count, BandSettings(**settings).draws))


def test_no_band_was_asked_for() -> None:
    for verdict in (
        ask("careful@3.R=? [ C<=2 ]", bands=None),
        ask("careful@3.R=? [ C<=2 ]", Basin(0.93, 1.5, 0.3)),
        ask('"overflow"'),
    ):
        assert (verdict.bands, verdict.credible) == (None, None)


def test_other_learned_worlds_have_their_own_fits() -> None:
    leaky = Basin(0.8, 1.5, 0.3, fits=[Basin(0.8 + n / 100, 1.5, 0.3) for n in range(3)])
    alone = ask("model:leaky@3.R=? [ C<=2 ]", Basin(0.93, 1.5, 0.3), models={"leaky": leaky})
    assert alone.bands is not None
    assert alone.bands.fits == 3
    assert alone.credible is not None
    assert alone.credible[0] < alone.credible[1]
    assert ask("model:leaky@3.R=? [ C<=2 ]", models={"leaky": leaky}).bands == alone.bands


def test_one_fit_and_other_worlds_are_refused() -> None:
    with pytest.raises(ModelError, match="one fit, which leaves nothing open"):
        ask("@0.R=? [ C<=2 ]", basin(1))
    other = Basin(0.93, 1.5, 0.3)
    other.actions = ("shut",)  # type: ignore[assignment]
    with pytest.raises(ModelError, match="fit 2 has other action names than the world"):
        ask("@0.R=? [ C<=2 ]", Basin(0.93, 1.5, 0.3, fits=[Basin(0.93, 1.5, 0.3), other]))
    other.actions, other.labels = Basin.actions, ("full",)
    with pytest.raises(ModelError, match="fit 1 has other labels than the world"):
        ask("@0.R=? [ C<=2 ]", Basin(0.93, 1.5, 0.3, fits=[other, other]))
    with pytest.raises(ModelError, match="fits is 2; give a list of worlds"):
        ask("@0.R=? [ C<=2 ]", Basin(0.93, 1.5, 0.3, fits=2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="16 models do not have quantiles"):
        ask("@0.R=? [ C<=2 ]", bands=BandSettings(draws=16))
