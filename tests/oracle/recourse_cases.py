"""Seeded settings and goals for the oracle of best decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from random import Random

from tests.oracle.recourse import Recourse
from tests.oracle.setting import Setting
from tests.truth.settings import random_setting

SETTINGS = 90
QUESTIONS = 6
LABELS = ("a", "b", "c")
LONGEST = 6
"""Offsets that a goal looks ahead."""
WINDOW = 5
"""Pairs from the intervention state on."""
TRIES = 10
"""Goals drawn for one question at most."""
DIGITS = 13
"""Of a bound that is a value: within the tie rule."""


@dataclass(frozen=True)
class Question:
    """A goal on a setting at an offset; `changes` and `steps` for `best[<=changes]` and `best[steps]`."""

    setting: Setting
    offset: int
    goal: str
    changes: int
    steps: int

    @cached_property
    def recourse(self) -> Recourse:
        """Return the oracle of this question."""
        return Recourse(self.setting, self.goal, self.offset)


@cache
def questions(seed: int, count: int = QUESTIONS) -> tuple[Question, ...]:
    """Return questions on one setting in which there is something to decide."""
    random = Random(seed)
    setting = random_setting(random)
    while setting.actions == 1 or (len(setting.path) < 3 and random.random() < 0.8):
        setting = random_setting(random)
    return tuple(_question(random, setting) for _ in range(count))


def _question(random: Random, setting: Setting) -> Question:
    """Return a question; most bounds lie between two values or on one, so that they matter."""
    length = min(WINDOW, len(setting.path))
    offset = max(random.randrange(length) for _ in range(3))
    quantity, op, body, values = _worth_asking(random, setting, offset)
    chance = random.random()
    bound = Fraction(random.randrange(21), 20)
    if chance < 0.2:
        bound = random.choice(values)
    elif chance < 0.7:
        bound = sum(random.sample(values, 2), Fraction(0)) / 2
    goal = f"{quantity}{op}{float(bound):.{DIGITS}f} [ {body} ]"
    return Question(setting, offset, goal, random.randrange(4), random.randrange(5))


def _worth_asking(random: Random, setting: Setting, offset: int) -> tuple[str, str, str, list[Fraction]]:
    """Return a goal without its bound, and its values: mostly one on which some decision has an effect."""
    wanted = random.choice((1, 2, 3, 4))
    for _ in range(TRIES):
        quantity, body = _reward(random) if random.random() < 0.25 else _probability(random)
        op = random.choice((">=", ">=", ">=", ">", "<=", "<"))
        recourse = Recourse(setting, f"{quantity}{op}0.5 [ {body} ]", offset)
        values = [recourse.value(word) for word in ("nominal", "best", "optimal", "best[<=1]")]
        if len(set(values)) >= wanted:
            break
    return quantity, op, body, values


def _reward(random: Random) -> tuple[str, str]:
    last = random.randrange(LONGEST)
    return "R", random.choice((f"C<={last}", f"C={last}", f"C[{last // 2},{last}]"))


def _probability(random: Random) -> tuple[str, str]:
    return "P", random.choice(FORMULAS)(random)


def _steps(random: Random, longest: int = LONGEST) -> str:
    last = random.randrange(longest + 1)
    first = random.randrange(last + 1)
    return random.choice((f"<={last}", f"<={last}", f"[{first},{last}]", f"={last}"))


def _state(random: Random) -> str:
    one, other = (f'"{name}"' for name in random.sample(LABELS, 2))
    return random.choice((one, f"!{one}", f"({one} | {other})", f"({one} & !{other})"))


def _until(random: Random) -> str:
    op = random.choice(("U", "U", "U", "W", "R"))
    return f"{_state(random)} {op}{_steps(random)} {_state(random)}"


def _nested(random: Random) -> str:
    outer, inner = random.sample("FG", 2)
    return f"{outer}{_steps(random, 3)} ({_state(random)} | {inner}{_steps(random, 3)} {_state(random)})"


def _twice(random: Random) -> str:
    return f"F{_steps(random, 4)} ({_state(random)} & X F{_steps(random, 1)} {_state(random)})"


FORMULAS: tuple[Callable[[Random], str], ...] = (
    lambda random: f"G{_steps(random)} {_state(random)}",
    lambda random: f"G{_steps(random)} {_state(random)}",
    lambda random: f"F{_steps(random)} {_state(random)}",
    lambda random: f"F{_steps(random)} {_state(random)}",
    _until,
    _until,
    _nested,
    _twice,
    lambda random: f"({_until(random)}) & !(F{_steps(random)} {_state(random)})",
    lambda random: f"({_until(random)}) <=> X {_state(random)}",
)
