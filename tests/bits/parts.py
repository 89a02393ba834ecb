"""The parts of which there are digests, and what their numbers depend on besides the code of this repository.

Most parts add, multiply and divide only, which gives the same bits on every machine, and draw their inputs as whole
numbers. The others need logarithms, which a C library (or NumPy, on a processor with wider registers) may round in
another way, or the sum of Python, which from 3.12 on carries its rounding errors along. A digest of each of these
functions is stored too: where it differs, the parts that need it cannot be compared.

Of NumPy's sums, whose order depends on the processor (`@`, `einsum`), no number is in a digest: they decide comparisons
of nested goals that look back and what an answer on a learned model rests on, and are exact in the streams' policies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
from scipy import special

from tests.bits import kernels, monitors, questions
from tests.bits.digest import Bits

__all__ = ["FOUNDATIONS", "PARTS", "Part"]


def _logarithms() -> str:
    """Logarithms and exponentials of Python, NumPy and SciPy, and what NumPy draws by them."""
    chance, bits = random.Random(1), Bits()
    given = [chance.random() for _ in range(20_000)]
    for function in (math.log, math.log1p, math.log10, math.exp, math.expm1):
        bits.numbers([function(each) for each in given])
    array = np.array(given)
    for many in (np.log, np.log1p, np.exp, np.expm1):
        bits.numbers(many(array), many(array[:3]))
    bits.numbers(special.betaln(40.0 * array, 7.0), special.xlogy(array, array), special.ndtri(array))
    bits.numbers(special.betaincinv(3.0, 40.0 * array[:200], 0.025))
    bits.numbers(np.random.default_rng(3).standard_gamma(3.0 * array), np.random.default_rng(3).dirichlet(array[:5]))
    return bits.digest


def _sums() -> str:
    """Sums of Python."""
    chance, bits = random.Random(2), Bits()
    bits.numbers([sum(chance.random() for _ in range(20)) for _ in range(200)])
    return bits.digest


FOUNDATIONS: Final[Mapping[str, Callable[[], str]]] = {"logarithms": _logarithms, "sums": _sums}
"""Functions of others, each with what makes its digest."""


class Part(NamedTuple):
    """`made`: the digest of a batch, by number. `batches`: how many there are, the first `few` in the fast tests.

    `needs`: FOUNDATIONS.
    """

    made: Callable[[int], str]
    batches: int
    few: int = 2
    needs: tuple[str, ...] = ()


LOGARITHMS: Final = ("logarithms",)
BOTH: Final = ("logarithms", "sums")
PARTS: Final[Mapping[str, Part]] = {
    "rows": Part(kernels.rows, 50),
    "row bounds": Part(kernels.row_bounds_of_both_classes, 50),
    "means": Part(kernels.means, 50),
    "choices": Part(kernels.choices, 20),
    "uniforms": Part(kernels.uniforms, 20),
    "clocks": Part(kernels.clocks, 20, needs=LOGARITHMS),
    "verdicts": Part(questions.verdicts, 60, 1),
    "bounds": Part(questions.bounds, 60),
    "bounds of wide rows": Part(questions.bounds_of_wide_rows, 40),
    "long": Part(questions.long, 30),
    "large": Part(questions.large, 20),
    "values": Part(questions.values, 40),
    "values of dense rows": Part(questions.values_of_dense_rows, 6, 1),
    "decisions": Part(questions.decisions, 60),
    "recourse": Part(questions.recourse, 40, needs=("sums",)),
    "extremes": Part(questions.extremes, 60),
    "guaranteed": Part(questions.guaranteed, 60, needs=LOGARITHMS),
    "bands": Part(questions.bands, 3, 1, needs=BOTH),
    "sampled": Part(questions.sampled, 40, needs=BOTH),
    "notices": Part(monitors.notices, 250, 4),
    "model tests": Part(monitors.model_tests, 60, needs=BOTH),
    "learned streams": Part(monitors.learned_streams, 12, 1, needs=BOTH),
    "sampled streams": Part(monitors.sampled_streams, 12, 1, needs=BOTH),
    "agent steps": Part(monitors.agent_steps, 20),
    "evidence": Part(monitors.evidence, 20, 1),
}
"""A million rows, a hundred thousand messages of streams, and some hundred alarms are among them."""
