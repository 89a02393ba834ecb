"""Forecasts that are followed: which, from when to when, what became of them, against a naive reading of paths."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from monitor.logic import parse
from monitor.model import MDP
from monitor.runtime.forecasts import (
    EFFECT,
    NESTED,
    NOTHING_OWN,
    REWARD,
    SETTLED,
    SEVERAL,
    FollowedForecast,
    Forecasts,
    followed_forecast,
)
from monitor.runtime.monitor import Monitor
from monitor.statistics.calibration import CalibrationCounts
from monitor.types import (
    Calibrated,
    Calibration,
    Forecast,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    StreamSettings,
)
from tests.tiers import heavy

N = TypeVar("N")
Word = Sequence[frozenset[str]]
STATES, ACTIONS = 6, 2
MARKS = {"bad": [1, 4], "good": [2, 4]}
NOMINAL, CAREFUL = [0] * STATES, [1] * STATES
LETTERS = [frozenset[str](), frozenset({"bad"}), frozenset({"good"}), frozenset({"bad", "good"})]


def random_model(seed: int, *, bad: float = 1.0) -> MDP:
    """Rows in which every successor is possible. `bad`: by which factor the chance of a bad one is another."""
    rng = np.random.default_rng(seed)
    transitions = []
    for state, action in product(range(STATES), range(ACTIONS)):
        weights = rng.dirichlet(np.ones(STATES)) * np.where(np.isin(range(STATES), MARKS["bad"]), bad, 1.0)
        transitions += [(state, action, s, float(p)) for s, p in enumerate(weights / weights.sum())]
    return MDP.from_transitions(states=STATES, actions=ACTIONS, transitions=transitions, labels=MARKS)


def shown(state: int) -> frozenset[str]:
    return frozenset(name for name, states in MARKS.items() if state in states)


# ---- path formulas from their definitions: `word[i]` holds the labels at offset i ----


@dataclass(frozen=True)
class Path:
    """A path formula, how many letters it reads, and its truth on as many."""

    text: str
    length: int
    holds: Callable[[Word], bool]


PATHS = [
    Path('G<=3 !"bad"', 4, lambda word: all("bad" not in letter for letter in word[:4])),
    Path('F[1,3] "good"', 4, lambda word: any("good" in letter for letter in word[1:4])),
    Path('X "bad"', 2, lambda word: "bad" in word[1]),
    Path(
        '!"bad" U<=3 "good"',
        4,
        lambda word: any("good" in word[j] and all("bad" not in word[i] for i in range(j)) for j in range(4)),
    ),
    Path(
        'F<=2 ("bad" & X "good")',
        4,
        lambda word: any("bad" in word[j] and "good" in word[j + 1] for j in range(3)),
    ),
]


def decided(path: Path, known: Word) -> bool | None:
    """Whether all words that begin with the known letters agree, and on what."""
    known = known[: path.length]
    missing = path.length - len(known)
    outcomes = {path.holds([*known, *rest]) for rest in product(LETTERS, repeat=missing)}
    return outcomes.pop() if len(outcomes) == 1 else None


# ---- a stream ----


class Life:
    """One agent in a world with rows of its own, watched by a monitor that believes in a model."""

    def __init__(self, model: MDP, formulas: Iterable[str | FormulaSpec], *, nominal: Sequence[int] = NOMINAL) -> None:
        self.model = model
        self.formulas = list(formulas)
        self.monitor = self.make(nominal)
        self.notices: list[Notice] = []
        self.ticks = 0.0
        self.episode = 0
        self.seq = 0

    def make(self, nominal: Sequence[int] = NOMINAL) -> Monitor:
        """A monitor that has seen nothing."""
        settings = StreamSettings(max_lag=1e9, window=8, reorder_steps=0, policies={"a" * 64: "nominal"})
        return Monitor(self.model, {"nominal": list(nominal), "careful": CAREFUL}, self.formulas, settings)

    def step(
        self, state: int, agent: str = "ada", *, answer: bool = True, latest_only: bool = False, **more: object
    ) -> None:
        """The agent is in a state and does there what its policy says."""
        self.ticks += 0.01
        seq, self.seq = self.seq, self.seq + 1
        told = {"action": 0, "time": 100.0 + self.ticks, **more}
        observation = Observation(agent, self.episode, seq, state, **told)  # type: ignore[arg-type] # as the test says
        self.notices += self.monitor.observe(observation, self.now)
        if answer:
            self.notices += self.monitor.evaluate(self.now, latest_only=latest_only)
        if observation.terminated or observation.truncated:
            self.episode, self.seq = self.episode + 1, 0

    def steps(self, *states: int) -> None:
        for state in states:
            self.step(state)

    @property
    def now(self) -> Instant:
        return Instant(100.0 + self.ticks, self.ticks)

    def of(self, kind: type[N]) -> list[N]:
        return [notice for notice in self.notices if isinstance(notice, kind)]

    def outcomes(self) -> list[bool | None]:
        return [forecast.came_true for forecast in self.of(Forecast)]

    def restart(self, nominal: Sequence[int] = NOMINAL) -> list[Notice]:
        """Let another process take up where this one stands."""
        saved = self.monitor.save(everything=True)
        self.monitor = self.make(nominal)
        told = self.monitor.load(saved)
        self.notices += told
        return told

    def totals(self) -> dict[str, Calibration]:
        """Of each formula, of all agents there were."""
        return {each.formula: each.calibration for each in self.standing() if not each.agent}

    def standing(self) -> list[Calibrated]:
        return [notice for notice in self.monitor.current_state() if isinstance(notice, Calibrated)]


def walk(rng: random.Random, model: MDP, length: int) -> Iterator[int]:
    """States that follow the model's rows under the nominal policy."""
    state = rng.randrange(STATES)
    for _ in range(length):
        yield state
        successors, chances = model.row(state, 0)
        [state] = rng.choices(successors.tolist(), chances.tolist())


def followed_by_hand(life: Life, words: dict[tuple[object, int], Word], path: Path, name: str) -> list[Forecast]:
    """Which forecasts there are, and what becomes of them, from the verdicts and the labels of each episode alone.

    `words`: (episode, whether it terminated) -> its labels.
    """
    found, value, start = [], 0.0, -1
    for (episode, terminated), word in words.items():
        verdicts = {v.seq: v for v in life.of(Judged) if v.episode == episode and v.formula == name}
        value, start = 0.0, -1
        for seq in range(len(word)):
            if start >= 0 and seq - start + 1 == path.length:
                found.append(Forecast("ada", name, value, path.holds(word[start : seq + 1])))
                start = -1
            if start < 0 and seq in verdicts and seq < len(word) - 1:
                quantity = verdicts[seq].verdict.quantities[0]
                position = seq - quantity.offset
                if decided(path, word[position : seq + 1]) is None:
                    value, start = quantity.value, position
        if start >= 0:
            came_true = path.holds([*word[start:], *[word[-1]] * path.length]) if terminated else None
            found.append(Forecast("ada", name, value, came_true))
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.text)
@pytest.mark.parametrize("form", ["P>=0.5 [ {} ]", "regret(careful@2, P>=0.5 [ {} ])", "nominal@1.P=? [ {} ]"])
@pytest.mark.parametrize("every", [1, 3])
def test_every_pair_is_that_of_a_naive_reading(path: Path, form: str, every: int) -> None:
    model = random_model(5)
    life = Life(model, [FormulaSpec("watch", form.format(path.text), every=every)])
    rng = random.Random(11)
    words: dict[tuple[object, int], Word] = {}
    for episode in range(30):
        states = list(walk(rng, model, rng.randint(1, 14)))
        terminated = bool(episode % 3)
        for state in states[:-1]:
            life.step(state)
        life.step(states[-1], terminated=terminated, truncated=not terminated)
        words[episode, terminated] = [shown(state) for state in states]
    expected = followed_by_hand(life, words, path, "watch")
    assert life.of(Forecast) == expected
    outcomes = {forecast.came_true for forecast in expected}
    if path.length == 2 and every == 3 and not form.startswith("P"):
        assert not outcomes, "the step back has seen all that is asked for"
    else:
        assert outcomes >= ({True, False} if every == 1 else {False}), "there is something to compare"
    counts = CalibrationCounts()
    for forecast in expected:
        if forecast.came_true is None:
            counts.drop()
        else:
            counts.add(forecast.value, came_true=forecast.came_true)
    assert life.totals() == {"watch": counts.dump()}


def test_a_true_model_is_calibrated_and_a_wrong_one_is_not() -> None:
    world, wrong = random_model(7), random_model(7, bad=0.3)
    formulas = ['P>=0.5 [ G<=2 !"bad" ]', 'P>=0.5 [ F[1,2] "good" ]']
    states = list(walk(random.Random(3), world, 1800))
    told = {}
    for name, believed in (("true", world), ("wrong", wrong)):
        life = Life(believed, formulas)
        life.steps(*states)
        told[name] = [CalibrationCounts(each) for each in life.totals().values()]
    alpha = 0.01 / sum(len(counts.reliability()) for counts in told["true"])
    for counts in told["true"]:
        assert counts.resolved > 500
        assert all(point.interval[0] <= point.forecast <= point.interval[1] for point in counts.reliability(alpha))
        assert abs(counts.brier - counts.expected_brier) < 0.03
    safe = told["wrong"][0]
    off = [point for point in safe.reliability(alpha) if not point.agrees]
    assert off, "the world is worse than the model says"
    assert all(point.frequency < point.forecast for point in off)
    assert safe.brier > told["true"][0].brier + 0.03


def test_what_is_observed_already_is_not_forecast() -> None:
    model = random_model(5)
    life = Life(model, ['regret(careful@3, P>=0.5 [ G<=4 !"bad" ])'])
    life.steps(0, 4, 0, 0, 0)
    quantities = [judged.verdict.quantities[0] for judged in life.of(Judged)]
    assert [quantity.offset for quantity in quantities] == [0, 1, 2, 3, 3]
    assert [quantity.value for quantity in quantities[1:]] == [0.0] * 4, "bad within the last three steps"
    assert life.of(Forecast) == [Forecast("ada", "formula_0", quantities[0].value, came_true=False)]
    life.steps(0, 0, 0)
    later = [judged.verdict.quantities[0].value for judged in life.of(Judged)[5:]]
    expected = [Forecast("ada", "formula_0", value, came_true=True) for value in later[:2]]
    assert life.of(Forecast)[1:] == expected, "of five letters four are known: each forecast is one step long"


def test_an_end_that_is_final_decides_and_one_that_is_not_drops() -> None:
    for end, outcome in (("terminated", True), ("truncated", None)):
        life = Life(random_model(5), ['P>=0.5 [ G<=6 !"bad" ]'])
        life.steps(0, 0)
        life.step(3, terminated=end == "terminated", truncated=end == "truncated")
        assert life.outcomes() == [outcome]
        life.steps(0, 4, *[0] * 5)
        assert life.outcomes() == [outcome, False], "the next episode begins its own"


def test_whether_a_forecast_counts_does_not_depend_on_how_it_turns_out() -> None:
    """Else, where episodes are cut off, those that are decided early would be nearly all that counts."""
    life = Life(random_model(5), ['P>=0.5 [ F<=6 "bad" ]'])
    life.steps(0, 4, 0)
    assert life.outcomes() == [], "decided, and not due"
    life.step(0, truncated=True)
    assert life.outcomes() == [None]
    rng, model = random.Random(4), random_model(7)
    life = Life(model, ['P>=0.5 [ F<=6 "bad" ]'])
    for _ in range(300):
        states = list(walk(rng, model, rng.randint(4, 12)))
        life.steps(*states[:-1])
        life.step(states[-1], truncated=True)
    counts = CalibrationCounts(life.totals()["formula_0"])
    assert counts.dropped > counts.resolved > 150
    alpha = 0.01 / len(counts.reliability())
    assert all(point.interval[0] <= point.forecast <= point.interval[1] for point in counts.reliability(alpha))


def test_a_gap_a_conflict_and_another_policy_drop_what_is_followed() -> None:
    for kind in ("gap", "conflict", "lost", "impossible", "policy"):
        life = Life(certain(), ['P>=0.5 [ G<=6 !"bad" ]'])
        life.steps(0, 0)
        match kind:
            case "gap":
                life.seq += 1
                life.step(0)
            case "conflict":
                life.seq -= 1
                life.step(3)
            case "lost":
                life.notices += life.monitor.lost("ada", life.now)
                life.step(0)
            case "impossible":
                life.step(5)
            case _:
                life.step(0, policy="f" * 64)
        assert life.outcomes()[:1] == [None], kind
        assert life.totals()["formula_0"].dropped == 1, kind
        assert life.totals()["formula_0"].bins == ()


def certain() -> MDP:
    """State 0 stays or goes to 3, 3 goes back; neither reaches 5."""
    transitions = [(s, a, t, 0.5) for s in (0, 3) for a in range(ACTIONS) for t in (0, 3)]
    transitions += [(s, a, s, 1.0) for s in (1, 2, 4, 5) for a in range(ACTIONS)]
    return MDP.from_transitions(states=STATES, actions=ACTIONS, transitions=transitions, labels=MARKS)


def test_steps_that_are_not_answered_are_read_all_the_same() -> None:
    life = Life(random_model(5), ['P>=0.5 [ F<=4 "good" ]'])
    life.step(0)
    life.step(2, answer=False)
    life.step(0, answer=False)
    life.step(3, latest_only=True)
    life.step(3)
    assert life.outcomes() == [True]
    assert life.of(Forecast)[0].value == life.of(Judged)[0].verdict.quantities[0].value


def test_a_step_off_policy_is_counted() -> None:
    life = Life(random_model(5), ['P>=0.5 [ F<=2 "good" ]'])
    life.step(0)
    life.step(3, action=1)
    life.step(2)
    assert life.outcomes() == [True]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_restart_changes_nothing(cut: int) -> None:
    formulas = ['regret(careful@2, P>=0.5 [ G<=5 !"bad" ])', 'P=? [ F<=3 "good" ]']
    model = random_model(5)
    states = list(walk(random.Random(2), model, 30))
    whole, broken = Life(model, formulas), Life(model, formulas)
    for n, state in enumerate(states):
        if n % 12 == cut:
            assert [notice for notice in broken.restart() if isinstance(notice, Forecast)] == []
        whole.step(state)
        broken.step(state)
    assert broken.of(Forecast) == whole.of(Forecast) != []
    assert broken.standing() == whole.standing()
    [ours, theirs] = [life.monitor.save(everything=True).agents["ada"] for life in (whole, broken)]
    assert ours is not None
    assert theirs is not None
    assert msgspec.msgpack.encode(ours.formulas) == msgspec.msgpack.encode(theirs.formulas)


def test_another_policy_in_the_configuration_drops_and_begins_anew() -> None:
    life = Life(random_model(5), ['P>=0.5 [ G<=6 !"bad" ]'])
    life.steps(0, 4, *[0] * 5)
    assert life.outcomes() == [False]
    pending = life.of(Judged)[6].verdict.quantities[0].value
    assert life.restart(CAREFUL)[-1] == Forecast("ada", "formula_0", pending, None)
    assert life.totals() == {"formula_0": Calibration()}


def test_what_forgotten_agents_were_told_stays_in_the_total() -> None:
    life = Life(random_model(5), ['P>=0.5 [ G<=3 !"bad" ]'])
    life.steps(0, 4, 0, 0, 0)
    before = life.totals()["formula_0"]
    life.ticks += 4000.0
    life.notices += life.monitor.evaluate(life.now)
    assert life.monitor.agents() == ()
    assert life.outcomes() == [False, None]
    assert life.standing() == [Calibrated("formula_0", msgspec.structs.replace(before, dropped=1))]
    life.restart()
    assert life.totals() == {"formula_0": msgspec.structs.replace(before, dropped=1)}
    life.seq, life.episode = 0, 1
    for state in (0, 4, 0, 0):
        life.step(state, "bob")
    assert sum(count for count, _, _ in life.totals()["formula_0"].bins) == 2


GOAL = 'P>=0.5 [ G<=3 !"bad" ]'
REFUSED = {
    f"careful@1.{GOAL}": NOTHING_OWN,
    f"model:other@0.{GOAL}": NOTHING_OWN,
    f'careful@1.{GOAL} & "good"': NOTHING_OWN,
    "R>=0.5 [ C<=3 ]": REWARD,
    "regret(careful@1, R>=0.5 [ C<=3 ])": REWARD,
    'delta(careful, nominal)@0.P>0 [ G<=3 !"bad" ]': EFFECT,
    f"P>=0.5 [ G<=3 careful.{GOAL} ]": NESTED,
    f'{GOAL} & P>=0.5 [ F<=3 "good" ]': SEVERAL,
    f"{GOAL} & nominal@1.{GOAL}": SEVERAL,
    'P>=0.5 [ !"bad" ]': SETTLED,
    "P>=0.5 [ true ]": SETTLED,
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_followed_says_so_and_costs_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nothing is to be followed")

    for name in ("__init__", "begin", "read", "drop", "dump"):
        monkeypatch.setattr(Forecasts, name, never)
    assert followed_forecast(parse(text)) == REFUSED[text]
    if "model:" in text:
        return
    life = Life(random_model(5), [text])
    life.steps(0, 0, 0)
    life.step(0, terminated=True)
    assert len(life.of(Judged)) == 4
    assert life.standing() == []


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (GOAL, 0),
        ('P=? [ F<=3 "good" ]', 0),
        (f"regret(careful@2, {GOAL})", 0),
        (f"careful@2.{GOAL} => nominal@2.{GOAL}", 1),
        (f"nominal@2.{GOAL} <=> careful@2.{GOAL}", 0),
        ('P>=0.5 [ G<=3 !"bad" ] & P<=0.9 [ G<=3 !"bad" ]', 0),
        (f"R>=0.5 [ C<=3 ] | {GOAL}", 1),
    ],
)
def test_which_quantity_is_followed(text: str, index: int) -> None:
    found = followed_forecast(parse(text))
    assert isinstance(found, FollowedForecast)
    assert found.index == index
    life = Life(random_model(5), [text])
    life.steps(0, 0, 0, 4)
    quantity = life.of(Judged)[0].verdict.quantities[index]
    assert not quantity.text.startswith("careful")
    assert not quantity.text.startswith("R")
    assert [forecast.value for forecast in life.of(Forecast)][:1] == [quantity.value]


@heavy
def test_a_sampled_forecast_is_drawn_anew_in_a_fixed_number_of_draws() -> None:
    sampled = Life(random_model(5), [FormulaSpec("watch", GOAL, engine="sampled")])
    exact = Life(random_model(5), [GOAL])
    for life in (sampled, exact):
        life.steps(*[0, 3, 0, 5] * 20)
    ours, theirs = sampled.of(Forecast), exact.of(Forecast)
    assert [forecast.came_true for forecast in ours] == [forecast.came_true for forecast in theirs]
    assert len(ours) > 10
    assert all(value * 1024 == int(value * 1024) for value in (forecast.value for forecast in ours))
    off = np.array([one.value - other.value for one, other in zip(ours, theirs, strict=True)])
    assert 0.0 < np.abs(off).max() < 4.5 * 0.5 / 32, "standard errors of 1,024 draws"
    assert np.abs(off.mean()) < 4.5 * 0.5 / 32 / np.sqrt(len(off))
