"""Names of actions, and the meaning of a number that an agent, a policy or a formula gives for an action."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

_NUMERAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_LONGEST: Final = 64
"""Largest length of a text that is read as a number, in characters."""


class ActionNames:
    """The names of a model's actions.

    If no name is a number, a number is the index of an action. If one of the names is a number, as in a log that
    records levels such as 0, 40 and 100, then a number means the action with this name, not the action with this index:
    40 and 40.0 mean `"40"`. If two names denote the same number, such as `"1"` and `"1.0"`, this number means no
    action.

    Args:
        names: names of the actions 0, 1, ..; or none.
        count: the number of actions.

    >>> levels = ActionNames(("0", "40", "100"), 3)
    >>> levels.find(40), levels.find(1), levels.find("100"), levels.sent(1)
    (1, None, 2, 40)
    >>> ActionNames(("left", "right"), 2).find(1)
    1
    """

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.names, self.count = tuple(names), count

    @cached_property
    def numbers(self) -> Mapping[float, int]:
        """Number -> the action that the number means."""
        found = [(number, action) for action, name in enumerate(self.names) if (number := number_in(name)) is not None]
        if not found:
            return {action: action for action in range(self.count)}
        times = Counter(number for number, _ in found)
        return {number: action for number, action in found if times[number] == 1}

    @cached_property
    def by_index(self) -> bool:
        """True if the numbers that mean actions are exactly the indices of these actions."""
        return len(self.numbers) == self.count and all(number == action for number, action in self.numbers.items())

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """Name -> action."""
        return {name: action for action, name in enumerate(self.names)}

    @cached_property
    def _sent(self) -> Mapping[int, float]:
        return {action: number for number, action in self.numbers.items()}

    def find(self, raw: object) -> int | None:
        """Return the action that a name or a number from an agent means; None if there is none."""
        if isinstance(raw, str):
            return self.by_name.get(raw)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            return None
        return self.numbers.get(raw)

    def named(self, text: str) -> int | None:
        """Return the action that a text names, in `do(..)` of a formula or a cell of a file; None if there is none.

        Names come first. A text that is not a name is read as a number, if possible.
        """
        action = self.find(text)
        return self.find(number_in(text)) if action is None else action

    def sent(self, action: int) -> float | str:
        """Return the value that an agent sends for an action: a number, or the name if no number means the action."""
        return self._sent[action] if action in self._sent else self.names[action]

    @property
    def order(self) -> list[str]:
        """A list with one sentence on the assumed order of a policy's scores; empty if action numbers are indices."""
        return [] if self.by_index else [f"column k is the k-th of the actions {_few(self.names)}"]

    def expected(self) -> str:
        """Return the allowed values in words, such as `0..2`, `0..1, or one of ('left', 'right')` or `one of 0, 40`."""
        if any(number_in(name) is not None for name in self.names):
            return f"one of {_few(self.names)}"
        return f"0..{self.count - 1}{f', or one of {self.names!r}' if self.names else ''}"


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])


def number_in(text: str) -> float | None:
    """Return the number that a text denotes, as int if it is whole; None if the text is not a number.

    >>> number_in("40"), number_in("-0.5"), number_in("1e3"), number_in("40 %")
    (40, -0.5, 1000, None)
    """
    if len(text) > _LONGEST or _NUMERAL.fullmatch(text) is None:
        return None
    try:
        return int(text)
    except ValueError:
        number = float(text)
    return int(number) if number.is_integer() else number


WordsOfActions = Sequence[tuple[str, str]]
"""Pairs (action, words for it). An action is given by its name in the model, or by its number if it has no name."""


def action_in_words(name: str, number: int, words: WordsOfActions = ()) -> str:
    """Return the words for an action in a sentence: its `words`, else its name; `action` stands before a number.

    >>> action_in_words("brake", 1), action_in_words("40", 1), action_in_words("", 1)
    ('brake', 'action 40', 'action 1')
    >>> action_in_words("", 1, [("1", "fluids low, vasopressor 2")])
    "'fluids low, vasopressor 2'"
    """
    if (said := dict(words).get(name or str(number))) is not None:
        return f"'{said}'"
    return name if name and number_in(name) is None else f"action {name or number}"
