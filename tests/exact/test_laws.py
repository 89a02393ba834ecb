"""Laws of answers on random small worlds, and the same answers by enumerating every path (tests/oracle)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings

from tests.exact.small import LAW, Small, chances, exact, path_formula, question, small_world
from tests.tiers import examples

WORLDS = [
    *["nominal@0", "nominal@2", "@-1", "alt@0", "alt@1", "alt@3", "alt@-1", "alt@-2"],
    *["alt[0]@2", "alt[1]@1", "alt[2]@3", "do(1)@2", "do(0)[1]@2", "model:icy@2", "model:icy@-1"],
    *["delta(alt,nominal)@2", "delta(alt[1],third)@2", "delta(model:icy,do(0))@1"],
]
NESTED = [
    'P>=0.5 [ F<=2 "a" ]',
    'alt@0.P>0.3 [ X "b" ]',
    'third.P<=0.5 [ "a" U<=2 "b" ]',
    "R>=0.5 [ C<=1 ]",
    'alt[1].P>0.5 [ F<=2 "b" ]',
    'do(1)[1].P>0.5 [ F<=2 "b" ]',
    'model:icy.P>0.4 [ F<=2 "a" ]',
    "delta(alt,third).R>0 [ C[1,2] ]",
    'delta(alt,nominal).P>0 [ F<=2 "a" ]',
    'alt.P>0.5 [ F<=1 (third.P>0.5 [ X "a" ]) ]',
]
LOOKING_BACK = [
    'third@1.P>=0.5 [ "a" U<=2 "b" ]',
    '@2.P<0.5 [ F<=3 "b" ]',
    'alt@-1.P>0.4 [ G[1,2] "a" ]',
    'delta(alt,nominal)@1.P>0 [ F<=2 "a" ]',
    "alt[1]@-2.R<=0.5 [ C<=2 ]",
    'model:icy@1.P>0.4 [ F<=2 "a" ]',
    'third@1.P>0.5 [ F<=1 (alt.P>0.5 [ X "a" ]) ]',
    'third@1.P>0.5 [ F<=1 (alt@1.P>0.5 [ X "a" ]) ]',
]
AROUND = ["F<=2 ({})", "G<=2 ({})", "X ({})", "F[1,2] ({})", '"a" U<=2 ({})', '({}) W<=1 "b"', '"b" R<=2 ({})']


def any_world(chance: Random, *, length: int | None = None, support: int = 3) -> Small:
    """Deterministic or stochastic, off-policy steps or not, with a last action or without, ended or not."""
    return small_world(
        chance,
        stochastic=chance.random() < 0.5,
        open_end=chance.random() < 0.3,
        terminated=chance.random() < 0.3,
        length=length,
        support=support,
    )


@settings(LAW, max_examples=examples(25, 200))
@given(chances)
def test_answers_are_what_enumeration_gives(chance: Random) -> None:
    small = any_world(chance)
    text = question(chance, chance.choice(WORLDS))
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-10)


@pytest.mark.parametrize("nested", [*NESTED, *LOOKING_BACK])
@settings(LAW, max_examples=examples(10, 30))
@given(chances)
def test_nested_quantities_are_what_enumeration_gives(nested: str, chance: Random) -> None:
    """With every bound drawn anew: a truth shows a wrong number only if the bound lies between it and the right one."""
    small = any_world(chance, length=chance.randint(1, 3), support=2)
    nested = re.sub(r"(?<=[<>=])0(\.\d)?", lambda _: str(chance.randint(0, 8) / 8), nested)
    text = f"{chance.choice(WORLDS)}.P=? [ {chance.choice(AROUND).format(nested)} ]"
    assert small.number(text) == pytest.approx(float(exact(small, text)), abs=1e-10)


def observations(small: Small, start: int, length: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
    """Every path of `length` pairs that the agent may show from `start`, acting by nominal, and its probability."""

    def grow(weight: float, path: list[tuple[int, int]], state: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
        for action, share in small.setting.policies["nominal"][state].items():
            longer = [*path, (state, action)]
            if len(longer) == length:
                yield weight * float(share), longer
            else:
                for successor, p in small.setting.rows[state, action].items():
                    yield from grow(weight * float(share) * float(p), longer, successor)

    yield from grow(1.0, [], start)


@pytest.mark.parametrize("world", ["alt", "alt[1]", "do(1)", "model:icy", "nominal", "delta(alt,third)"])
@settings(LAW, max_examples=15)
@given(chances)
def test_total_probability(world: str, chance: Random) -> None:
    """Averaged over all that might have been observed since, looking back tells what looking ahead told."""
    small = small_world(chance, stochastic=chance.random() < 0.5)
    start, length = chance.randrange(small.model.states), chance.randint(1, 3)
    text = question(chance, f"{world}@{length - 1}", reach=3)
    seen = list(observations(small, start, length))
    average = sum(weight * (small.ask(text, path=path).value or 0.0) for weight, path in seen)
    plain = text.replace(f"@{length - 1}.", "@0.", 1)
    assert sum(weight for weight, _ in seen) == pytest.approx(1.0)
    assert average == pytest.approx(small.ask(plain, path=[(start, None)]).value, abs=1e-11)


@LAW
@given(chances)
def test_nominal_at_zero_is_the_plain_answer(chance: Random) -> None:
    """Whatever has been observed before, once the last action is the nominal one."""
    small = small_world(chance)
    last = small.setting.path[-1][0]
    action = next(iter(small.setting.policies["nominal"][last]))
    text = question(chance, "nominal@0")
    observed = [*small.setting.path[:-1], (last, action)]
    assert small.ask(text, path=observed).value == small.ask(text, path=[(last, None)]).value
    # and else it starts with the action really taken
    other = 1 - action
    taken = small.ask(text, path=[*small.setting.path[:-1], (last, other)]).value
    assert taken == pytest.approx(small.ask(text.replace("nominal", f"do({other})[1]"), path=[(last, None)]).value)


@pytest.mark.parametrize("stochastic", [False, True])
@LAW
@given(chances)
def test_the_nominal_policy_as_intervention_changes_nothing(stochastic: bool, chance: Random) -> None:  # noqa: FBT001 - a case of the test
    small = small_world(chance, stochastic=stochastic, on_policy=True, open_end=chance.random() < 0.3)
    policies = small.policies | {"same": small.policies["nominal"]}
    offset = chance.randint(-4, 4)
    text = question(chance, f"same@{offset}")
    assert small.ask(text, policies=policies).value == pytest.approx(
        small.number(text.replace("same@", "nominal@")), abs=1e-12
    )


@LAW
@given(chances)
def test_what_was_observed_is_certain_in_the_nominal_world(chance: Random) -> None:
    """Off-policy or not: at every offset the path is the one observed."""
    small = small_world(chance, length=chance.randint(2, 4))
    n = len(small.setting.path)
    for k, (state, _) in enumerate(small.setting.path):
        for name, where in small.setting.labels.items():
            assert small.number(f'nominal@{n - 1}.P=? [ F={k} "{name}" ]') == float(state in where)


@LAW
@given(chances)
def test_probabilities_and_their_complements(chance: Random) -> None:
    small = any_world(chance)
    world, path = chance.choice(["alt@2", "nominal@0", "model:icy@1"]), path_formula(chance)
    value = small.number(f"{world}.P=? [ {path} ]")
    assert 0.0 <= value <= 1.0 + 1e-12
    assert small.number(f"{world}.P=? [ !({path}) ]") == pytest.approx(1.0 - value, abs=1e-12)


@LAW
@given(chances)
def test_delta_is_the_difference(chance: Random) -> None:
    small = any_world(chance)
    one, other = chance.sample(["alt", "nominal", "third", "alt[1]", "do(0)", "model:icy"], 2)
    text = question(chance, "W@2")
    effect = small.number(text.replace("W@2", f"delta({one},{other})@2"))
    difference = small.number(text.replace("W@", f"{one}@")) - small.number(text.replace("W@", f"{other}@"))
    assert effect == difference
    assert small.number(text.replace("W@2", f"delta({one},{one})@2")) == 0.0


@LAW
@given(chances)
def test_rewards_add_up_over_intervals(chance: Random) -> None:
    """Both ends included, offset 0 the intervention state; also for the effect of one change over another."""
    small = any_world(chance)
    world = chance.choice(["alt@2", "nominal@1", "delta(alt,third)@2"])
    low, high = sorted((chance.randint(0, 4), chance.randint(0, 4)))
    whole = small.number(f"{world}.R=? [ C[{low},{high}] ]")
    assert whole == pytest.approx(sum(small.number(f"{world}.R=? [ C={k} ]") for k in range(low, high + 1)), abs=1e-12)


@LAW
@given(chances)
def test_a_takeover_longer_than_the_horizon_is_permanent(chance: Random) -> None:
    small = any_world(chance)
    text = question(chance, "alt[40]@2", reach=3)
    assert small.number(text) == pytest.approx(small.number(text.replace("[40]", "", 1)), abs=1e-14)
    assert small.number(text.replace("alt[40]", "alt[0]", 1)) == pytest.approx(
        small.number(text.replace("alt[40]", "nominal", 1)), abs=1e-14
    )


@LAW
@given(chances)
def test_the_same_dynamics_under_another_name_change_nothing(chance: Random) -> None:
    small = any_world(chance)
    text = question(chance, "model:icy@2")
    assert small.ask(text, models={"icy": small.model}).value == pytest.approx(
        small.number(text.replace("model:icy", "nominal")), abs=1e-12
    )


@LAW
@given(chances)
def test_states_beyond_the_horizon_do_not_matter(chance: Random) -> None:
    """Reading order of progression: a formula at offset k asks the same as the formula there, k steps on."""
    small = small_world(chance, length=3)
    path = path_formula(chance, reach=2)
    assert small.number(f"nominal@2.P=? [ F=2 ({path}) ]") == pytest.approx(
        small.number(f"nominal@0.P=? [ {path} ]"), abs=1e-12
    )
    assert small.number(f"alt@1.P=? [ X X ({path}) ]") == small.number(f"alt@1.P=? [ F=2 ({path}) ]")
