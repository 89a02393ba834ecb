"""A stream in which other policies act for a while: each verdict is that of a check from scratch on the held path."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from monitor import check
from monitor.model import MDP
from monitor.runtime.monitor import Monitor
from monitor.types import BandSettings, FormulaSpec, Instant, Judged, Observation, StreamSettings
from tests.exact.learned import learned_model
from tests.tiers import examples, first, scaled

SHA = {"nominal": "a" * 64, "careful": "b" * 64, "mixed": "c" * 64}
POLICIES: dict[str, list[Any]] = {
    "nominal": [[0.6, 0.4]] * 3,
    "careful": [1, 1, 1],
    "mixed": [[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]],
}
FORMULAS = [
    'careful[1]@3.P=? [ F<=4 "home" ]',
    'mixed@2.P=? [ G<=4 !"ditch" ]',
    'delta(mixed[2],nominal)@-1.P=? [ F<=5 "home" ]',
    'regret(mixed@2, P>=0.5 [ G<=4 !"ditch" ])',
    'handover(careful, P>=0.5 [ G<=2 !"ditch" ], 2) < 0.5',
    'nominal@1.P>=0.3 [ F<=2 (careful[1]@0.P>=0.4 [ X "home" ]) ]',
]


def model_of(random: Random, *, learned: bool) -> MDP:
    labels = {"ditch": frozenset({1}), "home": frozenset({2})}
    if learned:
        draws = [(s, a, random.randrange(3)) for s in range(3) for a in range(2) for _ in range(6)]
        return learned_model(4, 2, draws, labels)[0]
    rows = []
    for state in range(3):
        for action in range(2):
            weights = [random.random() for _ in range(3)]
            rows += [(state, action, to, weight / sum(weights)) for to, weight in enumerate(weights)]
    return MDP.from_transitions(states=3, actions=2, transitions=rows, labels={n: list(w) for n, w in labels.items()})


def policies_for(model: MDP) -> dict[str, object]:
    """The policies, with what they do in a learned model's state for all that was never observed."""
    more = model.states - 3
    return {name: [*choices, *[choices[0]] * more] for name, choices in POLICIES.items()}


def test_after_an_unknown_policy_an_answer_that_depends_on_it_is_undecided_until_it_lies_before() -> None:
    model = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[(s, a, to, 0.5) for s in range(3) for a in range(2) for to in (s, (s + 1) % 3)],
        labels={"ditch": [1], "home": [2]},
    )
    texts = {"depends": 'careful[1]@2.P>=0.5 [ F<=4 "home" ]', "does_not": 'careful@2.P>=0.5 [ F<=4 "home" ]'}
    specs = [FormulaSpec(name, text, engine="exact") for name, text in texts.items()]
    known = {sha256: name for name, sha256 in SHA.items()}
    policies = {**POLICIES, "nominal": [0, 0, 0]}
    monitor = Monitor(model, policies, specs, StreamSettings(window=5, max_lag=1e9, policies=known))
    reasons: dict[str, list[str]] = {name: [] for name in texts}
    for seq, acting in enumerate(["nominal", "unknown", "nominal", "nominal", "nominal"]):
        now = Instant(float(seq), float(seq))
        monitor.observe(Observation("ada", 0, seq, 0, 0, policy=SHA.get(acting, "d" * 64)), now)
        for each in monitor.evaluate(now):
            if isinstance(each, Judged):
                reasons[each.formula].append(each.verdict.reason)
    assert reasons["does_not"] == [""] * 4
    assert [reason[:30] for reason in reasons["depends"]] == ["", *["a policy that is not configured"[:30]] * 2, ""]


@scaled
@pytest.mark.parametrize("causal_model", first(1, ["any", "gumbel"]))
@pytest.mark.parametrize("learned", [False, True])
def test_a_verdict_on_a_stream_is_that_of_a_check_from_scratch(causal_model: str, *, learned: bool) -> None:
    random = Random(11)
    model = model_of(random, learned=learned)
    policies, bands = policies_for(model), BandSettings(draws=9, level=0.8)
    specs = [
        FormulaSpec(f"f{n}", text, causal_model=causal_model, bands="always")  # type: ignore[arg-type] # a literal
        for n, text in enumerate(FORMULAS)
    ]
    known = {sha256: name for name, sha256 in SHA.items()}
    settings = StreamSettings(window=5, max_lag=1e9, policies=known)
    monitor = Monitor(model, policies, specs, settings, bands=bands)
    state, acting, mixed = 0, "nominal", 0
    path: list[tuple[int, int]] = []
    acted: list[str] = []
    for seq in range(examples(8, 12) if learned else 30):
        acting = random.choice(list(SHA)) if random.random() < 0.4 else acting
        choices = POLICIES[acting][state]
        action = choices if isinstance(choices, int) else random.choices([0, 1], choices)[0]
        path, acted = [*path, (state, action)][-5:], [*acted, acting][-5:]
        now = Instant(float(seq), float(seq))
        monitor.observe(Observation("ada", 0, seq, state, action, policy=SHA[acting]), now)
        found = {each.formula: each.verdict for each in monitor.evaluate(now) if isinstance(each, Judged)}
        mixed += len(set(acted)) > 1
        for spec in specs:
            again = check(
                spec.text,
                model=model,
                policies=policies,
                path=path,
                acted=acted,
                causal_model=spec.causal_model,
                bands=bands,
                engine="exact",
                start_observed=len(path) > seq,
            )
            verdict = found[spec.name]
            assert (verdict.holds, verdict.outcome, verdict.robust) == (again.holds, again.outcome, again.robust)
            for one, other in zip(verdict.quantities, again.quantities, strict=True):
                assert one.value == pytest.approx(other.value, abs=1e-12)
                for band in ("bounds", "credible", "guaranteed"):
                    assert getattr(one, band) == pytest.approx(getattr(other, band), abs=1e-9)
            assert verdict.profile.keys() == again.profile.keys()
            for offset, pair in verdict.profile.items():
                assert pair == pytest.approx(again.profile[offset], abs=1e-12)
        successors, chances = model.row(state, action)
        state = int(random.choices([int(to) for to in successors], [float(chance) for chance in chances])[0])
        if state > 2:
            break
    assert mixed > 3
