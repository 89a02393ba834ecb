"""Bounds over causal models along the observed pairs, from the last pair backward. Compiled.

The bounds of a *node* (a true place, a counterfactual place and a pending obligation) are the lowest and the highest
mean of value times probability of all observations from this pair on, over the causal models. A causal model couples
the observations of the two places, and the successors of the two rows. Each coupling is chosen separately for each
node, by a transport problem (`monitor.hidden.transport`), so the bounds hold for every causal model, but they may be
wider than necessary (docs/semantics/hidden.md, section 16.10). Rules:

- The noise of actions is Gumbel noise. So the counterfactual action has the closed form of `monitor.causal.row`.
- The observations in the same state are equal, and so are the successors of the same row of the same model.
- Observations after which a policy does the same are one outcome. This changes no bound.
- If a label decides the obligation, the value is the probability of the observations, by true place.
- Successors after which the next pair is impossible have value 0.
- Each level is swept twice. The first sweep, from the first level to the last, finds the nodes of the next level and
  counts the effort; it solves no problem. The second, from the last level to the first, computes the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints, Shorts, longer
from monitor.causal.row import choose
from monitor.exact.forward.row_table import FULL
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.exact.hash_table import doubled, empty_table, find_slot
from monitor.hidden.couplings import Couplings, LatentTable
from monitor.hidden.readings import find_reading, same_reading
from monitor.hidden.transport import Transport, cheapest
from monitor.logic import TRUE

INITIAL = 16
"""Initial space for nodes of one level."""
MOST_KNOWN = 64
"""Number of pairs of rows whose bounds are kept while one node is evaluated."""
TINY = 1e-15
"""A probability of all impossible outcomes up to this size is a rounding error."""


@dataclass(eq=False)
class TrueSide:
    """What may have happened at one observed pair.

    `seen`: the latent steps. `shown` [G]: the probability of the observation of each latent step in its state; `acted`
    [G]: the probability of the action given this observation. `share`: the probability of this pair given all earlier
    ones. `begin` [G]: the first entry of each latent step in `into`, which has the next true place for each successor,
    or -1 where the next pair is impossible. At the last pair, `into` is empty.
    """

    seen: LatentTable
    shown: Floats
    acted: Floats
    share: float
    begin: Ints
    into: Ints


class Level:
    """The nodes of one pair, with their bounds.

    Args:
        true: what may have happened at the pair.
        ahead: [T] for each true place, the probability of all observations from this pair on, divided by their
            probability given all earlier ones.
        following: `ahead` of the next pair; empty at the last pair.
        table: the rows of the counterfactual world, and the policy in force.
        kinds: [S] the number of each state's label set.
        steps: [label sets, columns] the obligation that remains, as for `monitor.hidden.forward.read_labels`.
        rewarded: [columns] nonnegative if the reward of this step counts.
        then: the level of the next pair; None if no node needs it.

    Each node has a key, ((true place) * places + counterfactual place) * columns + column, where a counterfactual place
    is state * memories + memory. The hash table `keys`, `values` has the indices of the `count` nodes; `nodes` has
    their keys; `low` and `high` have their bounds. `worths` [ends, places, actions, columns]: the values of actions at
    the last pair, before labels are read; `position`: the index of each counterfactual place in them; `ends` [T]: which
    of them hold for each true place.
    """

    def __init__(
        self,
        true: TrueSide,
        ahead: Floats,
        following: Floats,
        table: Couplings,
        kinds: Shorts,
        steps: Ints,
        rewarded: Ints,
        then: Level | None,
    ) -> None:
        self.true, self.ahead, self.following, self.table = true, ahead, following, table
        self.kinds, self.steps, self.rewarded, self.then = kinds, steps, rewarded, then
        self.columns, self.places = len(rewarded), table.states * table.memories
        self.keys, self.values = empty_table(INITIAL)
        self.nodes, self.count = np.zeros(INITIAL, np.int64), 0
        self.low = self.high = np.zeros(0)
        self.is_last = len(following) == 0
        self.worths, self.position = np.zeros((0, 0, 0, 0)), np.zeros(0, np.int64)
        self.ends = self.position

    def grow(self) -> None:
        """Double the space for nodes."""
        self.keys, self.values = doubled(self.keys, self.values)
        self.nodes = longer(self.nodes, 2 * len(self.nodes))

    def add(self, place: int, other: int) -> int:
        """Return the index of the node of a start point."""
        while (node := find_node(self, place, other, 0)) == FULL:
            self.grow()
        return node

    def find(self, means: Means, most: int) -> None:
        """Find the nodes of the next level, up to about `most`, and count the effort."""
        self.low, self.high = np.zeros(self.count), np.zeros(self.count)
        at = 0
        while (at := sweep(self, means, at, True)) < self.count:
            assert self.then is not None
            if self.then.count > most:
                return
            self.then.grow()

    def close(self, worths: Floats, position: Ints, ends: Ints) -> None:
        """Set the values at the last pair."""
        self.worths, self.position, self.ends = worths, position, ends

    def evaluate(self, means: Means) -> None:
        """Compute the bounds of all nodes; those of the next level are known."""
        sweep(self, means, 0, False)


class Means:
    """Working memory: the transport problems, and the bounds for pairs of rows that are known already.

    `left`: the effort that is left; negative if it is spent. `most`: the number of rows, and of columns, beyond which
    one problem takes more than all effort, so there is no space for it. `finding`: whether nodes are found, not
    evaluated; `full`: whether the next level has no space. `known` [n, 4]: the true action and the memory after it, the
    counterfactual action and the memory after it; `known_low`, `known_high` [n]: their bounds; `count`: how many are
    known. `low`, `high`: the last result. `chosen` [A], `memory`: for `choose`. `highest_rows`, `highest_shown`: costs
    for the upper bound. `first`, `read`: the first latent step of each true outcome, and the reading of each
    counterfactual one.
    """

    def __init__(self, table: Couplings, shows: int, effort: int) -> None:
        self.left, self.finding, self.full = effort, True, False
        self.most = int(np.cbrt(effort))
        widest, merged = min(table.widest, self.most), min(shows, self.most)
        self.rows, self.shown = Transport(widest + 1, widest), Transport(merged + 1, merged)
        self.highest_rows, self.highest_shown = np.zeros((widest + 1, widest)), np.zeros((merged + 1, merged))
        self.first, self.read = np.zeros(shows, np.int64), np.zeros(shows, np.int64)
        self.known = np.zeros((MOST_KNOWN, 4), np.int64)
        self.known_low, self.known_high = np.zeros(MOST_KNOWN), np.zeros(MOST_KNOWN)
        self.count = 0
        self.low = self.high = 0.0
        self.memory, self.chosen = table.memory, np.zeros(table.actions)


# ---- compiled ----


def find_node(level: Level, place: int, other: int, column: int) -> int:
    """Return the index of a node, which is added if it is new; FULL if there is no space."""
    key = (place * level.places + other) * level.columns + column
    slot = find_slot(level.keys, key)
    if level.keys[slot] == -1:
        if level.count == len(level.nodes):
            return FULL
        level.keys[slot], level.values[slot], level.nodes[level.count] = key, level.count, key
        level.count += 1
    node: int = level.values[slot]
    return node


def sweep(level: Level, means: Means, at: int, finding: bool) -> int:
    """Process the nodes from number `at` on.

    `finding`: whether the nodes of the next level are found, until the effort is spent; otherwise they are known, with
    their bounds.
    Returns the first node for which the next level has no space, or the number of nodes.
    """
    means.finding = finding
    while at < level.count and (means.left >= 0 or not finding):
        left, column, both = means.left, level.nodes[at] % level.columns, level.nodes[at] // level.columns
        means.full = False
        bound_node(level, means, both // level.places, both % level.places, column)
        if means.full:
            means.left = left
            return at
        level.low[at], level.high[at] = means.low, means.high
        at += 1
    return level.count


def bound_node(level: Level, means: Means, place: int, other: int, column: int) -> None:
    """Write the bounds of one node to `means`."""
    true, table = level.true, level.table
    seen = true.seen
    begin, end, state = seen.begin[place], seen.begin[place + 1], other // table.memories
    rest = level.steps[level.kinds[state], column]
    means.low = means.high = 0.0
    means.count = 0
    if begin == end:
        return  # this pair is impossible there
    if level.rewarded[column] < 0 and rest < FIRST_COLUMN:
        if rest == TRUE:
            means.low = means.high = level.ahead[place]
        return
    policy = seen.policy if table.carries_on else table.policy
    if seen.state[begin] == state or policy.sees_state:
        total_low, total_high = 0.0, 0.0
        latent = begin
        while latent < end:
            after = same_shown(seen, latent, end)
            row = find_reading(policy, other % table.memories, state if policy.sees_state else seen.shown[latent])
            add_actions(level, means, latent, after, other, row, column)
            total_low += true.shown[latent] * means.low
            total_high += true.shown[latent] * means.high
            latent = after
    else:
        total_low, total_high = couple_shown(level, means, place, other, column)
    means.low, means.high = total_low / true.share, total_high / true.share


def same_shown(seen: LatentTable, latent: int, end: int) -> int:
    """Return the first latent step after `latent` with another observation, or `end`."""
    shown = seen.shown[latent]
    while latent < end and seen.shown[latent] == shown:
        latent += 1
    return latent


def couple_shown(level: Level, means: Means, place: int, other: int, column: int) -> tuple[float, float]:
    """Return the bounds over all couplings of the observations in the two states, which are different."""
    true, table, problem = level.true, level.table, means.shown
    seen, highest, state = true.seen, means.highest_shown, other // table.memories
    policy = seen.policy if table.carries_on else table.policy
    latent, end, rows, columns, missing = seen.begin[place], seen.begin[place + 1], 0, 0, 1.0
    means.left -= end - latent + table.shown_indptr[state + 1] - table.shown_indptr[state]
    while latent < end:
        n = 0
        while n < rows and not same_reading(seen.policy, seen.reading[means.first[n]], seen.reading[latent]):
            n += 1
        if n == rows:
            if rows == means.most:
                means.left = -1
                return 0.0, 0.0
            means.first[n], problem.supply[n] = latent, 0.0
            rows += 1
        problem.supply[n] += true.shown[latent]
        missing -= true.shown[latent]
        latent = same_shown(seen, latent, end)
    for k in range(table.shown_indptr[state], table.shown_indptr[state + 1]):
        row, n = find_reading(policy, other % table.memories, table.shown[k]), 0
        while n < columns and not same_reading(policy, means.read[n], row):
            n += 1
        if n == columns:
            if columns == means.most:
                means.left = -1
                return 0.0, 0.0
            means.read[n], problem.demand[n] = row, 0.0
            columns += 1
        problem.demand[n] += table.shown_chances[k]
    for n in range(rows):
        latent = means.first[n]
        for k in range(columns):
            add_actions(level, means, latent, same_shown(seen, latent, end), other, means.read[k], column)
            problem.cost[n, k], highest[n, k] = means.low, -means.high
    return solve(means, problem, highest, rows, columns, missing)


def solve(
    means: Means, problem: Transport, highest: Floats, rows: int, columns: int, missing: float
) -> tuple[float, float]:
    """Return the least mean of `problem.cost`, and minus the least mean of `highest`; both are changed.

    `missing`: the probability of all other rows, which have value 0. A problem of n rows and m columns takes an effort
    of n * m * (n + m) + max(n, m)**3 + 100, or of n * m + 100 if there is one coupling; a unit takes up to 41 ns.
    """
    if missing > TINY:
        problem.supply[rows] = missing
        for k in range(columns):
            problem.cost[rows, k] = highest[rows, k] = 0.0
        rows += 1
    longest = max(rows, columns)
    if longest == rows * columns:  # one row or one column
        means.left -= longest + 100
    else:
        means.left -= rows * columns * (rows + columns) + longest * longest * longest + 100
    if means.finding:
        return 0.0, 0.0
    least = cheapest(problem, rows, columns)
    for n in range(rows):
        for k in range(columns):
            problem.cost[n, k] = highest[n, k]
    return least, -cheapest(problem, rows, columns)


def add_actions(level: Level, means: Means, latent: int, end: int, other: int, row: int, column: int) -> None:
    """Write the bounds given the true observation of the latent steps `latent` to `end` to `means`.

    `row`: what the counterfactual policy reads.
    """
    true, table, chosen = level.true, level.table, means.chosen
    seen, state, recalled = true.seen, other // table.memories, other % table.memories
    policy = seen.policy if table.carries_on else table.policy
    total_low, total_high = 0.0, 0.0
    for n in range(latent, end):
        action, chance = seen.action[n], true.acted[n]
        means.left -= table.actions
        if table.carries_on and action >= 0 and state == seen.state[n] and recalled == seen.before[n]:
            # the observed action, even if the policy would not take it
            couple_rows(level, means, n, other, action, seen.after[n], column)
            total_low += chance * means.low
            total_high += chance * means.high
            continue
        if action < 0:
            for k in range(table.actions):
                chosen[k] = policy.choice[row, k]
        else:
            choose(seen.policy.choice[seen.reading[n]], action, policy.choice[row], chosen, means.memory)
        for k in range(table.actions):
            if chosen[k] > 0.0:
                couple_rows(level, means, n, other, k, policy.after[row], column)
                total_low += chance * chosen[k] * means.low
                total_high += chance * chosen[k] * means.high
    means.low, means.high = total_low, total_high


def couple_rows(level: Level, means: Means, latent: int, other: int, action: int, after: int, column: int) -> None:
    """Write the bounds over all couplings of the successors of a latent step and of a counterfactual action to `means`.

    `after`: the counterfactual memory after the action. At the last pair, the value of the action.
    """
    seen, table, known = level.true.seen, level.table, means.known
    if level.is_last:
        means.low = means.high = 0.0
        if not means.finding:
            at = level.position[other // table.memories * table.memories + after]
            means.low = means.high = level.worths[level.ends[seen.place[latent]], at, action, column]
        return
    for n in range(means.count):
        if (
            known[n, 0] == seen.action[latent]
            and known[n, 1] == seen.after[latent]
            and known[n, 2] == action
            and known[n, 3] == after
        ):
            means.low, means.high = means.known_low[n], means.known_high[n]
            return
    solve_rows(level, means, latent, other // table.memories * table.actions + action, after, column)
    if means.count < len(known):
        n = means.count
        known[n, 0], known[n, 1], known[n, 2], known[n, 3] = seen.action[latent], seen.after[latent], action, after
        means.known_low[n], means.known_high[n] = means.low, means.high
        means.count += 1


def solve_rows(level: Level, means: Means, latent: int, pair: int, after: int, column: int) -> None:
    """Write what `couple_rows` does, for rows whose bounds are not known yet. `pair`: the counterfactual row."""
    true, table, problem = level.true, level.table, means.rows
    seen, highest = true.seen, means.highest_rows
    taken = seen.state[latent] * table.actions + seen.action[latent]
    begin, end = table.taken_indptr[taken], table.taken_indptr[taken + 1]
    first, columns = table.indptr[pair], table.indptr[pair + 1] - table.indptr[pair]
    entry, rows, missing = true.begin[latent], 0, 1.0
    same = table.same_model and taken == pair
    total_low, total_high = 0.0, 0.0
    if not same:
        if end - begin > means.most or columns > means.most:
            means.left, means.low, means.high = -1, 0.0, 0.0
            return
        for k in range(columns):
            problem.demand[k] = table.target_chances[first + k]
    for n in range(end - begin):
        place, chance = true.into[entry + n], table.taken_chances[begin + n]
        if place < 0:
            continue
        if same:  # the same successor
            low, high = value_ahead(level, means, pair, first + n, place, after, column)
            total_low += chance * low
            total_high += chance * high
            continue
        problem.supply[rows] = chance
        missing -= chance
        for k in range(columns):
            low, high = value_ahead(level, means, pair, first + k, place, after, column)
            problem.cost[rows, k], highest[rows, k] = low, -high
        rows += 1
    if rows > 0:
        total_low, total_high = solve(means, problem, highest, rows, columns, missing)
    means.low, means.high = total_low, total_high


def value_ahead(
    level: Level, means: Means, pair: int, entry: int, place: int, after: int, column: int
) -> tuple[float, float]:
    """Return the bounds of a next true place together with the counterfactual successor `entry` of `pair`."""
    table, rest = level.table, level.steps[level.kinds[pair // level.table.actions], column]
    low = high = 0.0
    means.left -= 1
    if rest >= FIRST_COLUMN:
        then: Level = level.then  # type: ignore[assignment]
        node = find_node(then, place, table.target_successors[entry] * table.memories + after, rest - FIRST_COLUMN)
        if node == FULL:
            means.full = True
        elif not means.finding:
            low, high = then.low[node], then.high[node]
    if level.rewarded[column] >= 0:
        reward = table.rewards[pair // table.actions, pair % table.actions]
        if len(table.extra) > 0:
            reward += table.extra[entry]
        low += reward * level.following[place]
        high += reward * level.following[place]
    return low, high
