"""Reader of the text of `.pomdp` files into tables, from which `monitor.authoring.formats.pomdp` makes a model.

A statement may extend over several lines. A later statement replaces the values of an earlier one. `*` stands for every
state, action or observation. The declarations `states:`, `actions:` and `observations:` come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from monitor.authoring.formats.choices import ENTRY_BYTES, require_memory
from monitor.authoring.formats.textfile import Line, lines, shown

SparseRow = dict[int, float]
"""A distribution: number of a state or of an observation -> probability."""

NAMES: Final = ("states", "actions", "observations")
_WORDS: Final = {*NAMES, "discount", "values", "start", "T", "O", "R"}
_RESERVED: Final = {*_WORDS, "uniform", "identity", "reward", "cost", "include", "exclude", "reset"}
_TOKEN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|\S")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_MOST: Final = 1 << 31
_ANY: Final = -1

_PARTS: Final = ("actions", "states", "states", "observations")
RewardKey = tuple[int, ...]
"""Action, state, successor and observation to which a reward applies; -1: any."""


class _Tokens:
    """The words, numbers and signs of a text. `line`: line of the token that was taken last."""

    def __init__(self, content: bytes, source: str) -> None:
        self._rows = lines(content, source)
        self._held: Iterator[str] = iter(())
        self._next: str | None = None
        self.line, self._line = Line(source, 0, ""), Line(source, 0, "")

    def peek(self) -> str:
        """Return the next token without taking it; "" at the end."""
        while self._next is None:
            self._next = next(self._held, None)
            if self._next is None:
                row = next(self._rows, None)
                if row is None:
                    return ""
                self._line = row
                self._held = (found[0] for found in _TOKEN.finditer(row.text.partition("#")[0]))
        return self._next

    def take(self) -> str:
        """Take and return the next token. Raises ModelError at the end."""
        text = self.peek()
        if not text:
            raise self._line.error("the file ends here, within a statement")
        self.line, self._next = self._line, None
        return text

    def expect(self, text: str, after: str) -> None:
        """Take the next token. Raises ModelError if it is not `text`."""
        if (found := self.take()) != text:
            raise self.line.error(f"{shown(found)} stands where {text!r} is expected, after {after!r}")

    def accept(self, text: str) -> bool:
        """Take the next token if it is `text`; return whether it was."""
        if self.peek() != text:
            return False
        self.take()
        return True

    def has_number(self) -> bool:
        """Return whether the next token is a number."""
        return self.peek()[:1] in {*"0123456789.+-"}


@dataclass
class PomdpText:
    """The content of a `.pomdp` file.

    Attributes:
        sizes, names: number of `states`, `actions` and `observations`, and their names, if any.
        start: state -> probability that an episode begins in this state.
        moves: (action, state) -> next state -> probability.
        shows: (action, next state) -> observation -> probability.
        rewards: for each of the four parts of a rule, whether it is given -> rule -> (position in the file, reward).
    """

    limit: int
    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    start: SparseRow = field(default_factory=dict)
    moves: dict[tuple[int, int], SparseRow] = field(default_factory=dict)
    shows: dict[tuple[int, int], SparseRow] = field(default_factory=dict)
    rewards: dict[tuple[bool, ...], dict[RewardKey, tuple[int, float]]] = field(default_factory=dict)
    _places: dict[str, Mapping[str, int]] = field(default_factory=dict)
    _cells: int = 0

    def count(self, cells: int) -> None:
        """Raise ModelError if the numbers of all statements, with `*` expanded, need more memory than the limit."""
        self._cells += cells
        require_memory(ENTRY_BYTES * self._cells, self.limit, f"{self._cells:,} numbers")

    def place(self, line: Line, text: str, of: str) -> int:
        """Return the number of a state, action or observation, given by name or number."""
        if text in self._places.get(of, {}):
            return self._places[of][text]
        if _NAME.match(text):
            raise line.error(f"{shown(text)} is none of the {of}")
        return line.index(text, self.sizes[of], of.removesuffix("s"))

    def called(self, of: str, place: int) -> str:
        """Return the name of a state, action or observation, or its number if they have no names."""
        return self.names[of][place] if self.names[of] else str(place)

    def declare(self, of: str, names: Sequence[str], size: int) -> None:
        """Declare the states, the actions or the observations."""
        self.sizes[of], self.names[of] = size, tuple(names)
        self._places[of] = {name: place for place, name in enumerate(names)}

    def reward(self, action: int, state: int, successor: int, observation: int) -> float:
        """Return the reward of the last statement that applies; 0 if none applies."""
        best = (0, 0.0)
        for shape, rules in self.rewards.items():
            given = (action, state, successor, observation)
            key = tuple(part if there else _ANY for part, there in zip(given, shape, strict=True))
            best = max(best, rules.get(key, best))
        return best[1]

    def pay(self, rule: RewardKey, reward: float) -> None:
        """Add the reward of a statement."""
        self.count(1)
        rules = self.rewards.setdefault(tuple(part != _ANY for part in rule), {})
        rules[rule] = (self._cells, reward)


def read_text(content: bytes, source: str, limit: int) -> PomdpText:
    """Return the content of a `.pomdp` file. `limit`: bytes of memory. Raises ModelError with the line."""
    given, tokens = PomdpText(limit), _Tokens(content, source or "model")
    started = False
    while tokens.peek():
        word = tokens.take()
        if word not in _WORDS:
            raise tokens.line.error(f"{shown(word)} begins no statement; {', '.join(sorted(_WORDS))} do")
        if word in ("start", "T", "O", "R"):
            for of in NAMES:
                if of not in given.sizes:
                    raise tokens.line.error(f"no {of} above this line: a .pomdp file begins with {of}:")
            if not started:
                given.count(given.sizes["states"])
                given.start = _uniform(given.sizes["states"])
                started = True
        _STATEMENTS[word](given, tokens, word)
    if not started:
        raise tokens.line.error("there are no transitions: no statement T: follows the names")
    return given


def _add_unused(given: PomdpText, tokens: _Tokens, word: str) -> None:  # noqa: ARG001 - a statement
    """Read `discount` or `values`, on which no formula depends."""
    tokens.expect(":", word)
    value = tokens.take()
    if word == "discount":
        tokens.line.number_of(value, "discount")
    elif value not in ("reward", "rewards", "cost", "costs"):
        raise tokens.line.error(f"{shown(value)} is not reward or cost")


def _add_names(given: PomdpText, tokens: _Tokens, word: str) -> None:
    tokens.expect(":", word)
    if word in given.sizes:
        raise tokens.line.error(f"{word} are given twice")
    if tokens.has_number():
        size = tokens.line.index(tokens.take(), _MOST, "count")
        if not size:
            raise tokens.line.error(f"there are no {word}: give at least one")
        given.declare(word, (), size)
        return
    names = []
    while _NAME.match(tokens.peek()) and tokens.peek() not in _RESERVED:
        names.append(tokens.take())
    given.count(len(names))
    if not names or len(set(names)) < len(names):
        raise tokens.line.error(f"{word}: give their number, or a name for each that no other has")
    given.declare(word, names, len(names))


def _add_start(given: PomdpText, tokens: _Tokens, word: str) -> None:
    """Read the initial distribution."""
    states = given.sizes["states"]
    given.count(states)
    kind = tokens.take() if tokens.peek() in ("include", "exclude") else ""
    tokens.expect(":", word)
    if kind:
        listed = set()
        while (text := tokens.peek()) and text not in _RESERVED:
            listed.add(given.place(tokens.line, tokens.take(), "states"))
        held = listed if kind == "include" else set(range(states)) - listed
        if not held:
            raise tokens.line.error("no state is left to begin in")
        given.start = dict.fromkeys(sorted(held), 1 / len(held))
    elif tokens.accept("uniform"):
        given.start = _uniform(states)
    elif not tokens.has_number():
        given.start = {given.place(tokens.line, tokens.take(), "states"): 1.0}
    else:
        texts = [tokens.take()]
        while tokens.has_number():
            given.count(1)
            texts.append(tokens.take())
        if len(texts) == 1 < states:
            given.start = {given.place(tokens.line, texts[0], "states"): 1.0}
        elif len(texts) == states:
            given.start = _row([tokens.line.probability(text) for text in texts])
        else:
            raise tokens.line.error(f"{len(texts)} numbers for {states} states: give each its probability")


def _add_moves(given: PomdpText, tokens: _Tokens, word: str) -> None:
    """Read `T: action : state : successor probability`, or a row or matrix of them."""
    tokens.expect(":", word)
    _add_rows(given, tokens, given.moves, ("actions", "states", "states"))


def _add_shows(given: PomdpText, tokens: _Tokens, word: str) -> None:
    """Read `O: action : successor : observation probability`, or a row or matrix of them."""
    tokens.expect(":", word)
    _add_rows(given, tokens, given.shows, ("actions", "states", "observations"))


def _add_rows(
    given: PomdpText, tokens: _Tokens, table: dict[tuple[int, int], SparseRow], kinds: tuple[str, str, str]
) -> None:
    actions = _places(given, tokens, kinds[0])
    width = given.sizes[kinds[2]]
    if not tokens.accept(":"):
        rows = _matrix(given, tokens, kinds, len(actions))
        for action in actions:
            table.update({(action, state): dict(row) for state, row in enumerate(rows)})
        return
    states = _places(given, tokens, kinds[1])
    if not tokens.accept(":"):
        given.count(len(actions) * len(states) * (width + 1))
        row = dict(given.start) if _accepts_reset(tokens, kinds) else _weights(tokens, width)
        table.update({(action, state): dict(row) for action in actions for state in states})
        return
    ends = _places(given, tokens, kinds[2])
    given.count(len(actions) * len(states) * (len(ends) + 1))
    chance = tokens.line.probability(_last(tokens))
    for action in actions:
        for state in states:
            row = table.setdefault((action, state), {})
            for end in ends:
                row[end] = chance


def _matrix(given: PomdpText, tokens: _Tokens, kinds: tuple[str, str, str], copies: int) -> list[SparseRow]:
    """Return a row for each state."""
    states, width = given.sizes["states"], given.sizes[kinds[2]]
    if kinds[1] == kinds[2] and tokens.accept("identity"):
        given.count(2 * copies * states)
        return [{state: 1.0} for state in range(states)]
    given.count(copies * states * (width + 1))
    if tokens.accept("uniform"):
        return [_uniform(width)] * states
    return [_weights(tokens, width) for _ in range(states)]


def _accepts_reset(tokens: _Tokens, kinds: tuple[str, str, str]) -> bool:
    return kinds[1] == kinds[2] and tokens.accept("reset")


def _add_rewards(given: PomdpText, tokens: _Tokens, word: str) -> None:
    """Read `R: action : state : successor : observation reward`, or a row or matrix of rewards."""
    tokens.expect(":", word)
    rule = [_one_or_any(given, tokens, "actions")]
    tokens.expect(":", "the action")
    rule.append(_one_or_any(given, tokens, "states"))
    for of in _PARTS[len(rule) :]:
        if not tokens.accept(":"):
            break
        rule.append(_one_or_any(given, tokens, of))
    for end in product(*(range(given.sizes[of]) for of in _PARTS[len(rule) :])):
        value = _last(tokens) if len(rule) == len(_PARTS) else tokens.take()
        given.pay((*rule, *end), tokens.line.number_of(value, "reward"))


def _last(tokens: _Tokens) -> str:
    """Return the number at the end of a statement. Some programs write a colon before it."""
    tokens.accept(":")
    return tokens.take()


def _places(given: PomdpText, tokens: _Tokens, of: str) -> Sequence[int]:
    place = _one_or_any(given, tokens, of)
    return range(given.sizes[of]) if place == _ANY else [place]


def _one_or_any(given: PomdpText, tokens: _Tokens, of: str) -> int:
    text = tokens.take()
    return _ANY if text == "*" else given.place(tokens.line, text, of)


def _weights(tokens: _Tokens, width: int) -> SparseRow:
    """Return a row of `width` probabilities, or the uniform row for the word `uniform`."""
    if tokens.accept("uniform"):
        return _uniform(width)
    row: SparseRow = {}
    for place in range(width):
        text = tokens.take()
        if chance := tokens.line.probability(text):
            row[place] = chance
    return row


def _uniform(width: int) -> SparseRow:
    return dict.fromkeys(range(width), 1 / width)


def _row(chances: Sequence[float]) -> SparseRow:
    return {place: chance for place, chance in enumerate(chances) if chance}


_STATEMENTS: Final = {
    **dict.fromkeys(("discount", "values"), _add_unused),
    **dict.fromkeys(NAMES, _add_names),
    "start": _add_start,
    "T": _add_moves,
    "O": _add_shows,
    "R": _add_rewards,
}
