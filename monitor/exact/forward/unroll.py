"""A program laid out in strands, for loops that work on all start points at once.

Start points of different age owe different obligations: after `G<=20` comes `G<=19`, then `G<=18`. A *strand* holds one
obligation for each offset, such that they play the same part; then one pass over a strand serves every start point.
Most formulas need a single strand. What stands where follows from the program alone, however far it is laid out, so
sums over strands have an order that does not depend on what was asked before.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints
from monitor.logic import FALSE, TRUE, Automaton

__all__ = ["FIRST_STRAND", "Unrolled"]

Span = tuple[int, int, int, int]

FIRST_STRAND = 2
"""What a span leads to: FALSE, TRUE, or FIRST_STRAND + the number of a strand."""


class Unrolled:
    """Where each obligation stands, and what it becomes.

    Args:
        program: the obligations.
        letters: [readings, layers] the letter that a reading stands for, by offset; the last layer holds for all later
            ones. A reading is what a pair shows, at whichever offset.

    `owed`: for each strand the obligation at an offset. `spans` [n, 4]: from offset, to offset (exclusive), what is
    owed next, whether the offset pays; `known` [strands, readings, 2]: first and last (exclusive) span of a strand that
    meets a reading. Both are other arrays when `reach`, the number of offsets laid out, has grown.
    """

    def __init__(self, program: Automaton, letters: Ints) -> None:
        self.program = program
        self.owed: list[dict[int, int]] = [{0: program.start}]
        self.horizon = program.horizon(program.start)
        self.reach = 0
        self.spans = np.zeros((0, 4), dtype=np.int64)
        self.known = np.zeros((1, len(letters), 2), dtype=np.int64)
        self._letters = letters
        self._strand: dict[tuple[int, int], int] = {}
        self._laid_out: dict[tuple[int, int], list[Span]] = {}

    def extend(self, offsets: int) -> None:
        """Lay out so many offsets at least, as far as anything is owed there.

        Raises LimitError where the program has too many obligations; what was laid out stays as it was.
        """
        if min(offsets, self.horizon) <= self.reach:
            return
        begin, end = self.reach, min(max(offsets, 2 * self.reach), self.horizon)
        self._unfold(begin, end)
        self.reach = end
        for offset in range(begin, end):
            letters = self._shown(offset)
            for strand in range(len(self.owed)):  # those that are added now owe nothing before the next offset
                if offset in self.owed[strand]:
                    self._read(offset, strand, letters)
        self.known = np.zeros((len(self.owed), len(self._letters), 2), dtype=np.int64)
        spans: list[Span] = []
        for key, some in self._laid_out.items():
            self.known[key] = len(spans), len(spans) + len(some)
            spans += some
        self.spans = np.array(spans, dtype=np.int64).reshape(-1, 4)

    def _unfold(self, begin: int, end: int) -> None:
        """Have the program take every step there will be, before anything is changed: it may refuse one."""
        owed = {some[begin] for some in self.owed if begin in some}
        for offset in range(begin, end):
            letters = self._shown(offset)
            owed = {self.program.step(obligation, letter) for obligation in owed for letter in letters} - {FALSE, TRUE}

    def _shown(self, offset: int) -> list[int]:
        """The letter of each reading at an offset."""
        letters: list[int] = self._letters[:, min(offset, self._letters.shape[1] - 1)].tolist()
        return letters

    def _read(self, offset: int, strand: int, letters: list[int]) -> None:
        """What the obligation of a strand at an offset becomes with each reading."""
        owed = self.owed[strand][offset]
        pays = int(self.program.rewards(owed))
        for reading, letter in enumerate(letters):
            rest = self.program.step(owed, letter)
            target = rest if rest in (FALSE, TRUE) else FIRST_STRAND + self._place(offset + 1, rest, strand)
            spans = self._laid_out.setdefault((strand, reading), [])
            if spans and spans[-1][1:] == (offset, target, pays):
                spans[-1] = spans[-1][0], offset + 1, target, pays
            else:
                spans.append((offset, offset + 1, target, pays))

    def _place(self, offset: int, obligation: int, wanted: int) -> int:
        """The strand of an obligation at an offset: the `wanted` one, if it is free there."""
        if (offset, obligation) not in self._strand:
            strand = wanted
            if offset in self.owed[wanted]:
                strand = next((s for s, owed in enumerate(self.owed) if offset not in owed), len(self.owed))
            if strand == len(self.owed):
                self.owed.append({})
            self.owed[strand][offset] = obligation
            self._strand[offset, obligation] = strand
        return self._strand[offset, obligation]
