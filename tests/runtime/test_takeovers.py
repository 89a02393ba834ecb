"""Takeovers judged on a stream: which, when, by what; against an oracle, and against a simulation that shares noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import msgspec
import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.evaluation import Held, TableEngines, alone
from monitor.exact import Checker
from monitor.exact.evaluators import Evaluators
from monitor.logic import automaton, parse
from monitor.logic.syntax import Goal, InterventionRef, Regret
from monitor.model import MDP
from monitor.policy.table import PolicyTable, as_table
from monitor.runtime import takeovers
from monitor.runtime.monitor import Monitor, Saved
from monitor.runtime.takeovers import (
    BROKEN,
    CUT_OFF,
    GONE,
    NESTED,
    NO_POLICY,
    SAMPLED,
    UNKNOWN,
    judged_takeover,
    takeover_goal,
)
from monitor.stream.session import SessionState
from monitor.types import (
    UNKNOWN_POLICY,
    Blind,
    Forecast,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Observation,
    Sampling,
    StreamSettings,
    TakenOver,
)
from tests.exact.learned import learned_model
from tests.oracle.evaluate import Evaluator
from tests.oracle.setting import Dist, Setting
from tests.tiers import examples, first, scaled
from tests.truth.engine_side import model_of

ROAD, DITCH, HOME = 0, 1, 2
RUSH, CRAWL = 0, 1
SHA = {"nominal": "a" * 64, "careful": "b" * 64, "other": "c" * 64}
POLICIES = {"nominal": [RUSH] * 3, "careful": [CRAWL] * 3, "other": [CRAWL] * 3}
SAFE = 'regret(careful@0, P>=0.5 [ G<=2 !"ditch" ])'


def road(slip: float = 0.9) -> MDP:
    """Rushing ends in the ditch with probability `slip`, crawling hardly ever."""
    transitions = [(ROAD, RUSH, DITCH, slip), (ROAD, RUSH, ROAD, 1 - slip), (ROAD, CRAWL, ROAD, 0.9)]
    transitions += [(ROAD, CRAWL, DITCH, 0.05), (ROAD, CRAWL, HOME, 0.05)]
    transitions += [(place, action, place, 1.0) for place in (DITCH, HOME) for action in (RUSH, CRAWL)]
    return MDP.from_transitions(
        states=3, actions=2, transitions=transitions, labels={"ditch": [DITCH], "home": [HOME]}, rewards=[(0, 0, 2.0)]
    )


class Stream:
    """One agent whose messages say which policy acted."""

    def __init__(
        self, model: MDP, formulas: Sequence[str | FormulaSpec] = (SAFE,), *, window: int = 8, **more: object
    ) -> None:
        self.model, self.formulas = model, list(formulas)
        self.settings = StreamSettings(
            window=window, max_lag=1e9, reorder_steps=0, policies={sha: name for name, sha in SHA.items()}
        )
        self.more = more
        self.monitor = self.make()
        self.seq = 0
        self.notices: list[Notice] = []

    def make(self) -> Monitor:
        """A monitor that has seen nothing."""
        return Monitor(self.model, POLICIES, self.formulas, self.settings, **self.more)  # type: ignore[arg-type] # as the test says

    @property
    def now(self) -> Instant:
        return Instant(100.0 + self.seq, float(self.seq))

    def send(self, policy: str, /, *states: int, **more: object) -> None:
        """Steps in which a policy acts: a name, or any digest."""
        for state in states:
            actions = POLICIES.get(policy, POLICIES["nominal"])
            told = {"action": actions[state % 3], "policy": SHA.get(policy, policy), "episode": "e", **more}
            observation = Observation("ada", told.pop("episode"), self.seq, state, **told)  # type: ignore[arg-type] # likewise
            self.notices += self.monitor.observe(observation, self.now)
            self.notices += self.monitor.evaluate(self.now)
            self.seq += 1

    def restart(self) -> None:
        """Another process reads what this one has stored."""
        stored = msgspec.msgpack.encode(self.monitor.save(everything=True))
        self.monitor = self.make()
        self.notices += self.monitor.load(msgspec.msgpack.decode(stored, type=Saved))

    @property
    def session(self) -> SessionState:
        """What is kept of the agent's messages and its path."""
        state = self.monitor.save(everything=True).agents["ada"]
        assert state is not None
        return state.session

    @property
    def taken(self) -> list[TakenOver]:
        return [notice for notice in self.notices if isinstance(notice, TakenOver)]

    @property
    def outcomes(self) -> list[str]:
        return [notice.outcome for notice in self.taken]


# ---- the four outcomes ----


@pytest.mark.parametrize(
    ("slip", "states", "outcome"),
    [
        (0.9, [ROAD, ROAD, ROAD], "needed"),
        (0.1, [ROAD, ROAD, ROAD], "needless"),
        (0.01, [ROAD, ROAD, DITCH], "harmful"),
        (0.9, [ROAD, DITCH, DITCH], "futile"),
    ],
)
def test_a_takeover_is_judged_by_what_the_deployed_policy_would_have_done(
    slip: float, states: list[int], outcome: str
) -> None:
    stream = Stream(road(slip))
    stream.send("nominal", ROAD, ROAD)
    stream.send("careful", *states[:2])
    assert stream.taken == []
    stream.send("careful", states[2])
    [taken] = stream.taken
    assert (taken.outcome, taken.formula, taken.policy) == (outcome, "formula_0", "careful")
    assert (taken.first_seq, taken.since, taken.seq, taken.time) == (2, 102.0, 4, 104.0)
    assert taken.path == tuple((state, CRAWL) for state in states)
    assert taken.acted == ("careful",) * 3
    assert not taken.start_observed


def test_the_value_of_going_on_is_that_of_the_shared_noise() -> None:
    """Crawling stayed on the road twice; how often would rushing, with the same noise, have done so?

    With u uniform and the outcomes' noises shared, P(ROAD under RUSH | ROAD under CRAWL) has a closed form for two
    common successors: crawling has (.9, .05), rushing (.1, .9), and HOME is none of rushing's.
    """
    stream = Stream(road(0.9))
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD, ROAD, ROAD)
    rng = np.random.default_rng(3)
    noise = rng.gumbel(size=(400_000, 3))
    with np.errstate(divide="ignore"):
        crawled = np.argmax(np.log([0.9, 0.05, 0.05]) + noise, axis=1)  # road, ditch, home
        rushed = np.argmax(np.log([0.1, 0.9, 0.0]) + noise, axis=1)
    stays = float(np.mean(rushed[crawled == ROAD] == ROAD))
    [taken] = stream.taken
    assert taken.verdict is not None
    happened, gone_on = taken.verdict.quantities
    assert happened.value == 1.0
    assert gone_on.value == pytest.approx(stays**2, abs=0.002)
    assert (happened.threshold, gone_on.threshold) == (0.5, 0.5)


def test_rewards_are_judged_when_the_last_of_them_is_known() -> None:
    stream = Stream(road(0.5), ["regret(careful@0, R>=3 [ C<=1 ])"])
    stream.send("careful", ROAD, ROAD)  # from the start of the episode
    assert stream.taken == []
    stream.send("careful", ROAD)
    [taken] = stream.taken
    assert taken.start_observed
    assert taken.verdict is not None
    assert [quantity.value for quantity in taken.verdict.quantities] == [
        0.0,
        pytest.approx(2 + 2 / 1.85),
    ]  # 1 / D(.9 / .5)
    assert taken.outcome == "harmful"


def test_the_goal_of_handover_judges_too_and_each_formula_by_its_own_policy() -> None:
    formulas = [
        FormulaSpec("soon", 'handover(careful, P>=0.5 [ G<=1 !"ditch" ], 2) < 0.9'),
        FormulaSpec("other", SAFE.replace("careful", "other")),
        FormulaSpec("stop", SAFE.replace("careful", "do(1)")),
        FormulaSpec("plain", 'careful@0.P>=0.5 [ G<=2 !"ditch" ]'),
    ]
    stream = Stream(road(), formulas)
    stream.send("nominal", ROAD)
    stream.send("careful", *[ROAD] * 5)
    stream.send("nominal", ROAD)
    stream.send("other", *[ROAD] * 5)
    assert [(taken.formula, taken.policy, taken.first_seq) for taken in stream.taken] == [
        ("soon", "careful", 1),
        ("other", "other", 7),
    ]


def test_takeovers_within_one_horizon_are_judged_one_by_one() -> None:
    stream = Stream(road(), [SAFE.replace("G<=2", "G<=4")])
    for policy in ("nominal", "careful", "nominal", "careful", "careful", "careful", "careful", "careful"):
        stream.send(policy, ROAD)
    assert [(taken.first_seq, taken.acted) for taken in stream.taken] == [
        (1, ("careful", "nominal", "careful", "careful", "careful")),
        (3, ("careful",) * 5),
    ]


def test_a_change_from_one_fallback_to_another_is_no_new_takeover() -> None:
    stream = Stream(road(), [SAFE, FormulaSpec("b", SAFE.replace("careful", "other"))])
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD)
    stream.send("other", ROAD, ROAD, ROAD, ROAD)
    assert [(taken.formula, taken.acted) for taken in stream.taken] == [("formula_0", ("careful", "other", "other"))]


# ---- the end of the episode, and what leaves a takeover undecided ----


def test_the_end_of_the_episode_judges_what_is_still_followed() -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD)
    stream.send("careful", HOME, terminated=True)
    [taken] = stream.taken
    assert (taken.outcome, taken.terminated, len(taken.path)) == ("needed", True, 2)


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (lambda stream: stream.send("careful", ROAD, truncated=True), CUT_OFF),
        (lambda stream: stream.send("d" * 64, ROAD), UNKNOWN),
        (lambda stream: stream.send("careful", 7, action=RUSH), BROKEN),
        (lambda stream: stream.send("careful", ROAD, episode="f"), CUT_OFF),
    ],
)
def test_a_takeover_whose_end_is_not_known_is_undecided(then: object, reason: str) -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD)
    assert callable(then)
    then(stream)
    [taken] = stream.taken
    assert (taken.outcome, taken.reason, taken.verdict) == ("undecided", reason, None)
    assert (taken.episode, taken.first_seq, taken.seq) == ("e", 1, 1)


def test_a_window_that_the_takeover_has_left_leaves_it_undecided() -> None:
    short, enough = Stream(road(), window=2), Stream(road(), window=3)
    for stream in (short, enough):
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD, ROAD, ROAD, ROAD)
    assert short.outcomes == ["undecided"]
    assert short.taken[0].reason == "the path holds 2 steps, and 3 are needed; make path.window larger"
    assert enough.outcomes == ["needed"]


@pytest.mark.parametrize("last", [ROAD, DITCH, HOME])
def test_a_window_that_is_too_short_judges_no_takeover_however_its_episode_ends(last: int) -> None:
    short, enough = Stream(road(), window=2), Stream(road(), window=3)
    for stream in (short, enough):
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD)
        stream.send("careful", last, terminated=True)
    assert short.taken[0].reason == "the path holds 2 steps, and 3 are needed; make path.window larger"
    assert (short.outcomes, len(enough.taken)) == (["undecided"], 1)
    assert enough.outcomes != ["undecided"]


def test_a_takeover_that_a_smaller_window_has_dropped_stays_undecided_in_a_larger_one() -> None:
    stream = Stream(road(), window=1)
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD, ROAD)
    stream.settings = msgspec.structs.replace(stream.settings, window=8)
    stream.restart()
    stream.send("careful", ROAD)
    [taken] = stream.taken
    assert taken.reason == "the path holds 2 steps, and 3 are needed; make path.window larger"


def test_a_takeover_whose_beginning_was_not_seen_is_not_judged() -> None:
    stream = Stream(road())
    stream.seq = 3  # the agent was joined in the middle of its episode
    stream.send("careful", *[ROAD] * 4)
    stream.send("d" * 64, ROAD)  # whose actions are nobody's
    stream.send("careful", *[ROAD] * 4)
    assert stream.taken == []


def test_a_takeover_is_not_invented_for_the_next_episode() -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD)
    stream.send("careful", HOME, terminated=True)
    stream.seq = 0
    stream.send("nominal", *[ROAD] * 4, policy=None, episode="f")
    assert [taken.episode for taken in stream.taken] == ["e"]


def test_a_forgotten_agent_and_a_removed_formula_leave_it_undecided() -> None:
    forgotten, removed = Stream(road()), Stream(road())
    for stream in (forgotten, removed):
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD)
    later = Instant(1e6, 1e6)
    assert [each.reason for each in forgotten.monitor.evaluate(later) if isinstance(each, TakenOver)] == [GONE]
    removed.formulas = ['"home"']
    removed.restart()
    assert [taken.reason for taken in removed.taken] == [GONE]


def test_a_restart_in_between_changes_nothing() -> None:
    through, stopped = Stream(road()), Stream(road())
    for stream in (through, stopped):
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD)
    stopped.restart()
    for stream in (through, stopped):
        stream.send("careful", ROAD, ROAD)
    assert stopped.outcomes == ["needed"]
    assert stopped.taken == through.taken


def test_after_a_reload_with_another_file_of_the_same_name_who_acted_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD)
    assert len(stream.session.path.held) == 2
    monkeypatch.setitem(POLICIES, "careful", [RUSH] * 3)
    stream.restart()
    assert stream.session.path.acted == ["nominal", UNKNOWN_POLICY]


def test_without_known_policies_nobody_takes_over() -> None:
    stream = Stream(road())
    stream.settings = StreamSettings(window=8, max_lag=1e9)
    stream.monitor = stream.make()
    stream.send("nominal", ROAD)
    stream.send("careful", *[ROAD] * 4)
    assert stream.taken == []
    assert [query.takeover_goal for query in stream.monitor.queries] == [None]


# ---- what else changes for a policy that is known ----


def test_a_known_policy_is_no_mismatch_and_no_deviation_and_drops_the_forecast() -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD, ROAD, ROAD)
    assert not any(isinstance(notice, Blind) for notice in stream.notices)
    assert len(stream.session.deviation.excesses) == 1
    forecasts = [notice.came_true for notice in stream.notices if isinstance(notice, Forecast)]
    assert forecasts == [None], "the deployed policy did not act on; while another acts nothing is forecast"
    stream.send("nominal", ROAD, ROAD, ROAD, ROAD)
    assert [notice.came_true for notice in stream.notices if isinstance(notice, Forecast)] == [None, True]


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ('P>=0.5 [ G<=2 !"ditch" ]', {}, NO_POLICY),
        ('regret(do(1)@0, P>=0.5 [ G<=2 !"ditch" ])', {}, NO_POLICY),
        ('regret(careful@0, P>=0.5 [ F<=1 (P>=0.5 [ X "home" ]) ])', {}, NESTED),
        (SAFE, {"engine": "sampled"}, SAMPLED),
    ],
)
def test_why_a_formula_judges_no_takeover(text: str, more: dict[str, str], reason: str) -> None:
    spec = FormulaSpec("f", text, **more)  # type: ignore[arg-type] # an engine
    assert takeover_goal(parse(text), sampled=spec.engine == "sampled") == reason
    stream = Stream(road(), [spec])
    stream.send("nominal", ROAD)
    stream.send("careful", *[ROAD] * 4)
    assert stream.taken == []


def test_bounds_over_causal_models_say_whether_the_judgement_is_robust() -> None:
    close, clear = (FormulaSpec("f", SAFE.replace("0.5", bound), causal_model="any") for bound in ("0.01", "0.5"))
    for spec, robust in ((close, False), (clear, True)):
        stream = Stream(road(), [spec])
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD, ROAD, ROAD)
        [taken] = stream.taken
        assert taken.verdict is not None
        _, gone_on = taken.verdict.quantities
        assert gone_on.bounds is not None
        assert gone_on.bounds[0] <= gone_on.value <= gone_on.bounds[1]
        assert taken.verdict.robust is robust


# ---- against the oracle ----

ONE = Fraction(1)


def dist(random: Random, over: Sequence[int], size: int) -> Dist:
    chosen = random.sample(list(over), size)
    weights = [random.randint(1, 4) for _ in chosen]
    return {each: Fraction(weight, sum(weights)) for each, weight in zip(chosen, weights, strict=True)}


def draw(random: Random, of: Dist) -> int:
    return random.choices(list(of), [float(weight) for weight in of.values()])[0]


def random_takeover(seed: int) -> Setting:
    """A path from a takeover on, in a world of random rows, with policies that are stochastic or not."""
    random = Random(seed)
    rows = {(s, a): dist(random, range(3), random.randint(1, 3)) for s in range(3) for a in range(2)}
    policies = {
        name: tuple(dist(random, range(2), random.randint(1, 2)) for _ in range(3)) for name in ("nominal", "careful")
    }
    state, path, lasts = random.randrange(3), [], random.randint(1, 4)
    acted = ("careful",) * lasts + ("nominal",) * (4 - lasts)
    for name in acted:
        action = draw(random, policies[name][state])
        path.append((state, action))
        state = draw(random, rows[state, action])
    return Setting(
        states=3,
        actions=2,
        rows=rows,
        policies={**policies, "deployed": policies["nominal"]},
        path=tuple(path),
        labels={"ditch": frozenset({DITCH})},
        acted=acted,
    )


def table_of(policy: tuple[Dist, ...], model: MDP) -> PolicyTable:
    return as_table([[float(of.get(action, 0)) for action in range(2)] for of in policy], model)


@pytest.mark.parametrize("seed", range(40))
def test_judgements_on_a_stream_are_those_of_the_oracle(seed: int) -> None:
    setting = random_takeover(seed)
    model = model_of(setting, setting.rows, rewards=True)
    tables = {name: table_of(setting.policies[name], model) for name in ("nominal", "careful")}
    settings = StreamSettings(max_lag=1e9, policies={SHA[name]: name for name in tables})
    spec = FormulaSpec("f", 'regret(careful@0, P>=0.5 [ G<=3 !"ditch" ])', causal_model="any")
    monitor = Monitor(model, tables, [spec], settings)
    found: list[Notice] = []
    for seq, ((state, action), policy) in enumerate(zip(setting.path, setting.acted, strict=True)):
        now = Instant(float(seq), float(seq))
        found += monitor.observe(Observation("ada", 0, seq, state, action, policy=SHA[policy]), now)
        found += monitor.evaluate(now)
    [taken] = [notice for notice in found if isinstance(notice, TakenOver)]
    goal = 'P>=0.5 [ G<=3 !"ditch" ]'
    answer = Evaluator(setting).answer(f"@3.{goal} & deployed@3.{goal}", "any")
    assert taken.verdict is not None
    for part, quantity in zip(answer.parts, taken.verdict.quantities, strict=True):
        assert quantity.value == pytest.approx(float(part.value), abs=1e-12)
        assert quantity.bounds == pytest.approx([float(end) for end in part.bounds or ()], abs=1e-12)
        assert (quantity.holds, quantity.robust) == (part.holds, part.robust)
    words = {(True, False): "needed", (True, True): "needless", (False, True): "harmful", (False, False): "futile"}
    assert taken.outcome == words[bool(answer.parts[0].holds), bool(answer.parts[1].holds)]


# ---- against a simulation that shares the noise ----

EPISODES = examples(40_000, 100_000)
STEPS = 3


@scaled
@pytest.mark.parametrize("seed", first(2, range(4)))
def test_outcomes_are_as_frequent_as_where_both_policies_run_on_one_noise(seed: int) -> None:
    """In each simulated episode the noise of every step and action is drawn once, and both policies run on it.

    The probability that the deployed policy meets the goal, averaged over the episodes with what happened, is how often
    it does. Differences within an episode are averaged, so three standard errors of their mean are the tolerance.
    """
    rng, random = np.random.default_rng(seed), Random(seed)
    model = road(0.6)
    tables = {
        name: as_table([[rushes, 1 - rushes]] * 3, model)
        for name, rushes in (("nominal", 1 - 0.4 * random.random()), ("careful", 0.4 * random.random()))
    }
    acted = ["careful"] * random.randint(1, STEPS)
    acted += ["nominal"] * (STEPS + 1 - len(acted))
    rows = np.array([[_dense(model, state, action) for action in range(2)] for state in range(3)])
    state = np.zeros((2, EPISODES), dtype=np.int64)  # what happens; what would happen
    path = [[np.zeros(0)] * 2] * 0
    for step in range(STEPS + 1):
        choice, noise = rng.gumbel(size=(EPISODES, 2)), rng.gumbel(size=(EPISODES, 3))
        with np.errstate(divide="ignore"):
            actions = [
                np.argmax(np.log(_choices(tables[name])[at]) + choice, axis=1)
                for name, at in zip((acted[step], "nominal"), state, strict=True)
            ]
            path.append([state[0], actions[0]])
            state = np.array(
                [np.argmax(np.log(rows[at, did]) + noise, axis=1) for at, did in zip(state, actions, strict=True)]
            )
        if step == STEPS - 1:
            met, would_meet = state != DITCH  # it is absorbing
    pairs = np.array(path).transpose(2, 0, 1)
    different, back = np.unique(pairs.reshape(EPISODES, -1), axis=0, return_inverse=True)
    engines = TableEngines(Checker(model, tables), Sampling())
    values = np.array([_gone_on(engines, each.reshape(-1, 2), acted) for each in different])[back.reshape(-1)]
    for happened in (met, ~met):
        errors = happened * (would_meet - values)
        assert abs(errors.mean()) <= 3 * errors.std() / np.sqrt(EPISODES)
    assert np.mean(met & ~would_meet) > 0.02, "the takeover matters"


def _dense(model: MDP, state: int, action: int) -> list[float]:
    successors, chances = model.row(state, action)
    return [float(chances[successors == other].sum()) for other in range(model.states)]


def _choices(table: PolicyTable) -> np.ndarray:
    assert table.probabilities is not None
    return table.probabilities


def _gone_on(engines: TableEngines, path: np.ndarray, acted: list[str]) -> float:
    """The value of going on, on one path."""
    spec = FormulaSpec("f", f'regret(careful@0, P>=0.5 [ G<={STEPS} !"ditch" ])')
    formula = parse(spec.text)
    assert isinstance(formula, Regret)
    pairs = [(int(state), int(action)) for state, action in path]
    verdict = judged_takeover(formula.goal, engines, spec, Held(pairs, acted=acted), alone(Sampling()))
    assert [verdict.quantities[0].value] == [float(all(state != DITCH for state, _ in pairs))]
    return verdict.quantities[1].value


def test_a_path_knows_who_acted_at_each_pair_it_holds() -> None:
    stream = Stream(road(), window=3)
    held = []
    for policy in ("nominal", "careful", "nominal", "nominal", "nominal"):
        stream.send(policy, ROAD)
        held.append([*stream.session.path.acted])
    assert held == [
        [],
        ["nominal", "careful"],
        ["nominal", "careful", "nominal"],
        ["careful", "nominal", "nominal"],
        [],
    ]


# ---- what is too large ----


def test_a_judgement_that_is_too_large_is_undecided_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(road())
    stream.send("nominal", ROAD)
    stream.send("careful", ROAD, ROAD)

    def refuse(*_: object, **__: object) -> None:
        raise LimitError("too many states")

    monkeypatch.setattr(takeovers, "judged_takeover", refuse)
    stream.send("careful", ROAD)
    [taken] = stream.taken
    assert (taken.outcome, taken.reason) == ("undecided", "too many states")


def test_a_goal_whose_table_is_too_large_judges_nothing_and_is_watched_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare = Evaluators.prepare

    def refuse(self: Evaluators, goal: Goal, change: InterventionRef) -> None:
        if change.name == self.deployed:
            raise LimitError("too many states")
        prepare(self, goal, change)

    monkeypatch.setattr(Evaluators, "prepare", refuse)
    stream = Stream(road())
    assert [query.takeover_goal for query in stream.monitor.queries] == [None]
    stream.send("nominal", ROAD)
    assert any(isinstance(notice, Judged) for notice in stream.notices)


def test_a_goal_that_unfolds_too_far_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_OBLIGATIONS", 2)
    text = 'regret(careful@0, P>=0.5 [ (F<=9 "home") & (G<=7 !"ditch") ])'
    reason = takeover_goal(parse(text))
    assert "MAX_OBLIGATIONS" in str(reason)


def test_on_a_learned_model_the_judgement_has_its_bands() -> None:
    draws = [(s, a, t) for s, a, t in [(0, 0, 1), (0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)] for _ in range(20)]
    model, _ = learned_model(3, 2, draws, {"ditch": frozenset({DITCH})})
    for bands, there in (("auto", True), ("off", False)):
        stream = Stream(model, [FormulaSpec("f", SAFE, bands=bands)])  # type: ignore[arg-type] # a literal
        stream.send("nominal", ROAD)
        stream.send("careful", ROAD, ROAD, ROAD)
        [taken] = stream.taken
        assert taken.verdict is not None
        credible = taken.verdict.quantities[1].credible
        assert (credible is not None) is there
        if credible is not None:
            assert credible[0] <= taken.verdict.quantities[1].value <= credible[1]


def test_a_removed_formula_that_judged_none_drops_none() -> None:
    stream = Stream(road(), ['"ditch"'])
    stream.send("careful", ROAD)
    stream.formulas = ['"home"']
    stream.restart()
    assert stream.taken == []


def test_where_the_deployed_policy_was_never_recorded_the_takeover_is_undecided() -> None:
    """Nobody rushed on the road: had the deployed policy gone on, nobody knows what would have followed."""
    model, _ = learned_model(3, 2, [(ROAD, CRAWL, ROAD)] * 20, {"ditch": frozenset({DITCH, 2})})
    stream = Stream(model)
    stream.send("careful", ROAD, ROAD, ROAD)
    (judged,) = stream.taken
    assert (judged.outcome, judged.reason, judged.verdict) == ("undecided", "what was never recorded decides it", None)
