"""The transport problem: the least mean cost over all couplings of two distributions. Compiled.

A coupling of two distributions is a joint distribution with these two margins. The method sends probability along
shortest paths, one after another (successive shortest paths with node potentials, as in Ahuja, Magnanti and Orlin,
Network Flows, chapter 9). The least cost of each row is subtracted before, so that the costs of rare rows, which may be
large, leave the potentials of other rows exact. The result is the mean cost of the coupling found, less the most by
which another coupling may be cheaper according to the potentials. So it is at most the least mean cost, up to the
rounding of this sum.
"""

from __future__ import annotations

import numpy as np

TINY = 1e-15
"""What is left of a probability, relative to it, up to which nothing is sent: it is a rounding error."""
INFINITY = float("inf")


class Transport:
    """A transport problem and its working memory.

    `supply` [rows], `demand` [columns]: the two distributions. `cost` [rows, columns]. The arrays are as long as the
    longest distribution; a problem uses the first entries. `out`, `into`: the potentials of rows and columns. `left`,
    `lacking`: the probability that is not sent yet. `flow`: the probability sent. `spread`: the largest difference of
    the costs of a row; -1 after its probability was sent. `row_far`, `column_far`: lengths of shortest paths;
    `row_from`, `column_from`: the node before on this path; `row_done`, `column_done`: whether the length is final.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.supply, self.out, self.left, self.spread, self.row_far = (np.zeros(rows) for _ in range(5))
        self.demand, self.into, self.lacking, self.column_far = (np.zeros(columns) for _ in range(4))
        self.row_from, self.row_done = (np.zeros(rows, np.int64) for _ in range(2))
        self.column_from, self.column_done = (np.zeros(columns, np.int64) for _ in range(2))
        self.cost, self.flow = (np.zeros((rows, columns)) for _ in range(2))


# ---- compiled ----


def cheapest(problem: Transport, rows: int, columns: int) -> float:
    """Return the least mean cost over all couplings of `supply` [rows] and `demand` [columns]; `cost` is changed."""
    supply, demand, cost, out, into = problem.supply, problem.demand, problem.cost, problem.out, problem.into
    total = 0.0
    if rows == 1 or columns == 1:  # there is one coupling
        for i in range(rows):
            for j in range(columns):
                total += (demand[j] if rows == 1 else supply[i]) * cost[i, j]
        return total
    for i in range(rows):
        out[i], problem.left[i], problem.spread[i] = 0.0, supply[i], 0.0
        least = cost[i, 0]
        for j in range(columns):
            least = min(least, cost[i, j])
        total += supply[i] * least
        for j in range(columns):
            cost[i, j] -= least
            problem.spread[i] = max(problem.spread[i], cost[i, j])
    for j in range(columns):
        problem.lacking[j] = demand[j]
        least = cost[0, j]
        for i in range(rows):
            least = min(least, cost[i, j])
            problem.flow[i, j] = 0.0
        into[j] = least
    for _ in range(rows):
        row = 0
        for i in range(rows):
            row = i if problem.spread[i] > problem.spread[row] else row
        problem.spread[row] = -1.0  # rare rows, whose costs may be large, come first, and so are sent as a whole
        for _ in range(8 * (rows + columns)):  # more often than is ever necessary; with less sent, the result is lower
            end = find_path(problem, row, rows, columns) if problem.left[row] > TINY * supply[row] else -1
            if end < 0:
                break
            send(problem, end)
    for i in range(rows):
        for j in range(columns):
            reduced = cost[i, j] - out[i] - into[j]
            total += problem.flow[i, j] * cost[i, j]
            total -= problem.flow[i, j] * reduced if reduced > 0.0 else -min(supply[i], demand[j]) * reduced
    return total


def find_path(problem: Transport, source: int, rows: int, columns: int) -> int:
    """Find the shortest path from row `source` to a column that lacks probability, by Dijkstra's method.

    The potentials are updated, so that all reduced costs stay nonnegative and those on the path are 0. Returns the
    column, or -1 if there is no such path.
    """
    row_far, column_far, out, into = problem.row_far, problem.column_far, problem.out, problem.into
    row_done, column_done, cost, flow = problem.row_done, problem.column_done, problem.cost, problem.flow
    end = -1
    far = 0.0
    for i in range(rows):
        row_done[i], row_far[i] = 0, INFINITY
    for j in range(columns):
        column_done[j], column_far[j] = 0, INFINITY
    row_far[source], problem.row_from[source] = 0.0, -1
    while end < 0:
        row, column = -1, -1
        far = INFINITY
        for i in range(rows):
            if row_done[i] == 0 and row_far[i] < far:
                row, far = i, row_far[i]
        for j in range(columns):
            if column_done[j] == 0 and column_far[j] < far:
                column, far = j, column_far[j]
        if column >= 0:
            column_done[column] = 1
            if problem.lacking[column] > TINY * problem.demand[column]:
                end = column
            for i in range(rows):
                if row_done[i] == 0 and flow[i, column] > 0.0 and far < row_far[i]:
                    row_far[i], problem.row_from[i] = far, column
        elif row >= 0:
            row_done[row] = 1
            for j in range(columns):
                length = far + max(cost[row, j] - out[row] - into[j], 0.0)
                if column_done[j] == 0 and length < column_far[j]:
                    column_far[j], problem.column_from[j] = length, row
        else:
            return -1
    for i in range(rows):
        if row_far[i] < far:
            out[i] += far - row_far[i]
    for j in range(columns):
        if column_far[j] < far:
            into[j] -= far - column_far[j]
    return end


def send(problem: Transport, end: int) -> None:
    """Send as much probability as possible along the path that `find_path` found to column `end`."""
    amount, column = problem.lacking[end], end
    row = problem.column_from[column]
    while problem.row_from[row] >= 0:
        column = problem.row_from[row]
        amount = min(amount, problem.flow[row, column])
        row = problem.column_from[column]
    amount, column = min(amount, problem.left[row]), end
    problem.left[row] -= amount
    problem.lacking[end] -= amount
    row = problem.column_from[column]
    problem.flow[row, column] += amount
    while problem.row_from[row] >= 0:
        column = problem.row_from[row]
        problem.flow[row, column] -= amount
        row = problem.column_from[column]
        problem.flow[row, column] += amount
