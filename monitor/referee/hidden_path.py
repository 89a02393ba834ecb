"""Possible true paths for a path of observations: the places, and the probability of each.

1. A *place* is the hidden state, with the memory that every policy with memory would have there before the pair is
   read. Policies with the same content count as one. Policies are in the order of their contents.
2. A *happening* of a pair at a place is an observation and an action, with their probability. A missing observation or
   action may have any value. If the acting policy takes the observed action at no possible place, the action gives no
   information.
3. `prior` of a pair has the probability of each place given all earlier pairs. It is computed forwards.
4. `ahead` of a pair has, for each place, the probability of this pair and all later pairs, divided by the probability
   of these pairs given the earlier pairs. `ahead` is computed backwards. So at every pair, the products of `prior` and
   `ahead` sum to 1.

Definitions: docs/semantics/hidden.md, sections 16.1 and 16.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from monitor.errors import LimitError, PathError
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader
from monitor.types.stream_events import UNKNOWN_POLICY, ObservedPair

LIMIT = 1_000_000
"""Largest number of places reached, counted along the path."""


class Place(NamedTuple):
    """The hidden state, and the memory that each policy with memory would have there."""

    state: int
    memories: tuple[int, ...]


Belief = Mapping[Place, float]


class Happening(NamedTuple):
    """A possible observation and action at a place.

    `action`: None if not yet taken. `memories`: the memories after the pair was read.
    """

    observation: int
    action: int | None
    memories: tuple[int, ...]
    chance: float


class Minds:
    """The policies of a model, and their memories.

    Args:
        model: the MDP; without emissions, the state is observed.
        readers: name -> policy.
    """

    def __init__(self, model: MDP, readers: Mapping[str, Reader]) -> None:
        contents = {each.content(): each for each in readers.values()}
        self.model, self.readers = model, {name: contents[each.content()] for name, each in readers.items()}
        self._rememberers = [each for _, each in sorted(contents.items()) if each.remembers]

    @property
    def places(self) -> int:
        """Return the number of places."""
        number = self.model.states
        for reader in self._rememberers:
            number *= reader.memories
        return number

    @property
    def size(self) -> int:
        """Return how many numbers a belief entry has as plain data: place, weight, and the memories of networks."""
        return 2 + sum(reader.width for reader in self._rememberers)

    def place(self, number: int, remembered: Sequence[float]) -> Place:
        """Return the place with a number (mixed radix, state first); `remembered`: the memories of networks."""
        memories: list[int] = []
        rest = tuple(remembered)
        for reader in reversed(self._rememberers):
            number, memory = divmod(number, reader.memories)
            cut = len(rest) - reader.width
            memories.insert(0, reader.memory_of(rest[cut:]) if reader.width else memory)
            rest = rest[:cut]
        return Place(number, tuple(memories))

    def plain(self, belief: Belief) -> tuple[float, ...]:
        """Return a belief as plain data: place, weight, memories of networks, place, weight, ..."""
        found: defaultdict[tuple[float, ...], float] = defaultdict(float)
        for place, weight in belief.items():
            number = place.state
            remembered: tuple[float, ...] = ()
            for reader, memory in zip(self._rememberers, place.memories, strict=True):
                number = number * reader.memories + (0 if reader.width else memory)
                remembered += reader.numbers(memory)
            found[float(number), *remembered] += weight
        return tuple(part for key, weight in sorted(found.items()) for part in (key[0], weight, *key[1:]))

    def fresh(self, state: int) -> Place:
        """Return the place at the start of an episode."""
        return Place(state, (0,) * len(self._rememberers))

    def remembered(self, reader: Reader, memories: tuple[int, ...]) -> int:
        """Return the memory of a policy, 0 if it has none."""
        return memories[self._rememberers.index(reader)] if reader.remembers else 0

    def after(self, memories: tuple[int, ...], state: int, observation: int) -> tuple[int, ...]:
        """Return the memories after a pair is read."""
        return tuple(
            reader.read(memory, state if reader.sees_state else observation)[0]
            for reader, memory in zip(self._rememberers, memories, strict=True)
        )

    def choice(self, reader: Reader, memories: tuple[int, ...], state: int, observation: int) -> list[float]:
        """Return the distribution [A] of a policy's action; `memories`: the memories before the pair is read."""
        _, chosen = reader.read(self.remembered(reader, memories), state if reader.sees_state else observation)
        found: list[float] = chosen.tolist()
        return found


@dataclass(frozen=True)
class HiddenPath:
    """A path of observations, and its possible true paths.

    `acted`: the policy that acted at each pair. `before`: the belief before the first pair. Raises PathError if no true
    path is possible, LimitError if there are too many places.
    """

    minds: Minds
    pairs: Sequence[ObservedPair]
    acted: Sequence[str]
    before: Belief

    @cached_property
    def _forwards(self) -> tuple[list[Belief], list[float], list[bool]]:
        """Return beliefs, the probability of each pair, and for each pair whether its action gives no information.

        Beliefs are before each pair, and after the last. The belief after the last pair has the places at this pair,
        with the memories before this pair was read.
        """
        beliefs, chances, silent, count = [self.before], list[float](), list[bool](), 0
        for k, (seen, action) in enumerate(self.pairs):
            here, last = beliefs[-1], k == len(self.pairs) - 1
            silent.append(self._says_nothing(k, here))
            found: defaultdict[Place, float] = defaultdict(float)
            for place, weight in here.items():
                for each in self.happenings(k, place, silent=silent[-1]):
                    if last:
                        found[place] += weight * each.chance
                        continue
                    assert each.action is not None
                    for successor, chance in self.successors(place.state, each.action):
                        count += 1
                        found[Place(successor, each.memories)] += weight * each.chance * chance
            if count > LIMIT:
                raise LimitError(f"the referee follows at most {LIMIT:,} steps of what may have happened on a path")
            total = sum(found.values())
            if total <= 0.0:
                what = "state" if self.minds.model.emissions is None else "observation"
                raise PathError(f"pair {k}: {what} {seen} with action {action} is impossible after what came before")
            chances.append(total)
            beliefs.append({place: weight / total for place, weight in found.items() if weight > 0.0})
        return beliefs, chances, silent

    def _says_nothing(self, k: int, here: Belief) -> bool:
        """Return whether the action of a pair gives no information.

        This is so if the policy that chose it is unknown, or if this policy chooses the action at no possible place.
        """
        reader = self.acting(k)
        if reader is None:
            return True
        _, action = self.pairs[k]
        return action is not None and not any(
            self.minds.choice(reader, place.memories, place.state, observation)[action] > 0.0
            for place in here
            for observation, _, _ in self._readings(k, place)
        )

    def acting(self, k: int) -> Reader | None:
        """Return the policy that acted at a pair; None if its choice at this pair is unknown.

        The choice is unknown if the policy is not configured. The choice is also unknown if the policy's memory began
        at its takeover, because the takeover may have been before the path.
        """
        if self.acted[k] == UNKNOWN_POLICY:
            return None
        reader, nominal = self.minds.readers[self.acted[k]], self.minds.readers["nominal"]
        forgets = reader.remembers and not reader.shadows and reader is not nominal
        return None if forgets else reader

    @property
    def chances(self) -> list[float]:
        """Probability of each pair given the earlier pairs."""
        return self._forwards[1]

    def prior(self, k: int) -> Belief:
        """Return the belief before pair `k`."""
        return self._forwards[0][k]

    @property
    def silent(self) -> list[bool]:
        """For each pair, whether its action gives no information."""
        return self._forwards[2]

    @property
    def now(self) -> dict[int, float]:
        """Probability of each state at the last pair, given all pairs."""
        found: defaultdict[int, float] = defaultdict(float)
        for place, weight in self._forwards[0][-1].items():
            found[place.state] += weight
        return dict(found)

    @cached_property
    def ahead(self) -> list[dict[Place, float]]:
        """For each pair and place, the relative probability of the observations from this pair on (rule 4)."""
        found: list[dict[Place, float]] = []
        for k in reversed(range(len(self.pairs))):
            later = found[-1] if found else None
            found.append(
                {
                    place: sum(
                        each.chance * (1.0 if later is None else self._led(place, each, later))
                        for each in self.happenings(k, place)
                    )
                    / self.chances[k]
                    for place in self.prior(k)
                }
            )
        return found[::-1]

    def _led(self, place: Place, each: Happening, later: Mapping[Place, float]) -> float:
        assert each.action is not None
        return sum(
            chance * later.get(Place(successor, each.memories), 0.0)
            for successor, chance in self.successors(place.state, each.action)
        )

    def successors(self, state: int, action: int) -> list[tuple[int, float]]:
        """Return the states that an action leads to in the main model, with probabilities."""
        key = state, action
        if key not in self._rows:
            successors, chances = self.minds.model.row(state, action)
            self._rows[key] = list(zip(successors.tolist(), chances.tolist(), strict=True))
        return self._rows[key]

    @cached_property
    def _rows(self) -> dict[tuple[int, int], list[tuple[int, float]]]:
        return {}

    def happenings(self, k: int, place: Place, *, silent: bool | None = None) -> Iterator[Happening]:
        """Yield the possible observations and actions at a place of pair `k`."""
        _, action = self.pairs[k]
        reader = self.acting(k)
        silent = self.silent[k] if silent is None else silent
        for observation, memories, shown in self._readings(k, place):
            if action is None and k == len(self.pairs) - 1:
                yield Happening(observation, None, memories, shown)
            elif action is None:
                if reader is None:
                    reader = self.minds.readers["nominal"]
                chosen = self.minds.choice(reader, place.memories, place.state, observation)
                for taken, chance in enumerate(chosen):
                    if chance > 0.0:
                        yield Happening(observation, taken, memories, shown * chance)
            elif (silent or reader is None) and self.minds.model.available(place.state)[action]:
                yield Happening(observation, action, memories, shown)
            elif (
                not silent
                and reader is not None
                and (chance := self.minds.choice(reader, place.memories, place.state, observation)[action]) > 0.0
            ):
                yield Happening(observation, action, memories, shown * chance)

    def _readings(self, k: int, place: Place) -> Iterator[tuple[int, tuple[int, ...], float]]:
        """Yield each possible observation at a place, with the memories after reading and the probability."""
        seen, _ = self.pairs[k]
        for observation, chance in self.minds.model.shown(place.state):
            if seen is None or observation == seen:
                yield observation, self.minds.after(place.memories, place.state, observation), chance
