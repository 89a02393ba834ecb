"""Seeded batches of questions: a setting, and formulas asked on it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from tests.oracle.evaluate import Evaluator
from tests.oracle.setting import Setting
from tests.truth.formulas import Writer
from tests.truth.settings import random_setting

Kind = Literal["gumbel", "any", "stable"]
KINDS: tuple[Kind, ...] = ("gumbel", "gumbel", "gumbel", "gumbel", "gumbel", "any", "stable")
QUESTIONS = 40


@dataclass(frozen=True)
class Case:
    """One question: a formula on a setting, with bounds where the causal model is not `gumbel`.

    `before`: questions asked of the same `Checker` before, where that matters.
    """

    setting: Setting
    formula: str
    causal_model: Kind = "gumbel"
    before: tuple[tuple[str, Kind], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the case as lists and strings."""
        return {
            "formula": self.formula,
            "causal_model": self.causal_model,
            "before": [list(each) for each in self.before],
            "setting": self.setting.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Case:
        """Return the case that `to_json` wrote."""
        before = tuple((formula, kind) for formula, kind in data["before"])
        return cls(Setting.from_json(data["setting"]), data["formula"], data["causal_model"], before)


def batch(seed: int, questions: int = QUESTIONS) -> tuple[Evaluator, list[Case]]:
    """Return the questions of a seed, all on one setting, and the oracle that answers them."""
    random = Random(seed)
    setting = random_setting(random)
    evaluator = Evaluator(setting)
    writer = Writer(random, setting, evaluator)
    return evaluator, [Case(setting, writer.formula(), random.choice(KINDS)) for _ in range(questions)]
