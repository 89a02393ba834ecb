"""Two programs, one answer: every field of 400 verdicts on random questions, to 1e-9."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import asdict

from monitor import check
from monitor.referee import derive
from monitor.types import CausalModel, Verdict
from tests.referee.questions import Writer, setting
from tests.tiers import first

SEEDS, QUESTIONS = 50, 8
MODELS: tuple[CausalModel, ...] = ("gumbel", "gumbel", "any", "stable")


def plain(verdict: Verdict) -> list[tuple[str, Any]]:
    """Every field by name, numbers one by one."""
    fields = asdict(verdict)
    quantities = [(f"quantity {i}", one) for i, one in enumerate(fields.pop("quantities"))]
    profile = sorted(fields.pop("profile").items())
    parts = [("recourse", recourse)] if (recourse := fields.pop("recourse")) else []
    parts += [("changes", changes)] if recourse and (changes := recourse.changes) else []
    return [
        *fields.items(),
        *((f"{of} {name}", value) for of, one in quantities for name, value in asdict(one).items()),
        *((f"{of} {name}", value) for of, one in parts for name, value in asdict(one).items() if name != "changes"),
        *((f"profile {offset}", pair) for offset, pair in profile),
    ]


def agree(one: Verdict, two: Verdict) -> bool:
    ours, theirs = plain(one), plain(two)
    return [name for name, _ in ours] == [name for name, _ in theirs] and all(
        a == (pytest.approx(b, abs=1e-9) if isinstance(b, float | tuple) else b)
        for (_, a), (_, b) in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("seed", first(9, range(SEEDS)))
def test_the_same_verdicts(seed: int) -> None:
    here, rng = setting(seed), Random(seed)
    wrong = []
    for number in range(QUESTIONS):
        ended = number % 4 == 3
        text = Writer(rng, here.held).question()
        about: dict[str, Any] = {
            "model": here.model,
            "path": here.path,
            "policies": here.policies,
            "models": {"other": here.other},
            "causal_model": rng.choice(MODELS),
            "terminated": ended,
            "start_observed": rng.random() < 0.7,
        }
        ours, theirs = derive(text, **about), check(text, **about, engine="exact")
        if not agree(ours, theirs):
            wrong.append((text, about["causal_model"], ended, ours, theirs))
    assert not wrong


def test_the_questions_cover_the_language() -> None:
    texts = [Writer(Random(seed), [0]).question() for seed in range(400)]
    for word in ("regret", "delta", "do(0)", "model:other", "alt[", "R=?", "P=?", " U[", "F[", "=>", "@-", "& !("):
        assert sum(word in text for text in texts) > 5, word
    assert sum(text.count(".P") + text.count(".R") > 1 for text in texts) > 50  # nested, or several
