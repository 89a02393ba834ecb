"""e-BH selects which of many hypotheses to reject, with a bound on the false discovery rate.

Each hypothesis i has an e-value e_i and a weight w_i. The weights are chosen without looking at the e-values, and sum
to at most 1. e-BH rejects the R hypotheses with the largest w_i e_i. R is the largest number such that each of these R
products is at least 1/(level R).

Proof. A true hypothesis that is rejected has 1/R <= level w_i e_i. So the expected fraction of true hypotheses among
the rejected ones is at most the sum of level w_i E[e_i] over the true hypotheses. This sum is at most the level,
because E[e_i] <= 1 and the weights sum to at most 1. QED. The e-values may depend on each other. With e-processes, the
bound is valid at each stopping time.

`adjusted` returns a weaker e-value that is valid at any time: 0.1 e^0.9, where e is the highest value that an e-process
has reached. Even at the end of the stream, the expected value of 0.1 e^0.9 is at most 1, because the integral of
0.1 e^0.9 / e^2 over e >= 1 is 1. So the list may be read at times that depend on anything, even on the future and on
other streams. The highest value never decreases, so a rejection is never withdrawn.

Source: R. Wang, A. Ramdas, *False discovery rate control with e-values* (JRSS B 2022), also for weights; H. Wang,
S. Dandapanthula, A. Ramdas, *Anytime-valid FDR control with the stopped e-BH procedure* (2025); G. Shafer, A. Shen,
N. Vereshchagin, V. Vovk, *Test martingales, Bayes factors and p-values* (Statistical Science 2011) for the adjuster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LEVEL: Final = 0.05
"""False discovery rate of the rows, and of the agents, that are reported as wrong."""
KEPT: Final = 0.9
"""Exponent of e in `adjusted`."""


def discoveries(weighted: Sequence[float], level: float = LEVEL) -> list[int]:
    """Return the indices of the hypotheses that e-BH rejects, largest w_i e_i first; `weighted`: the w_i e_i.

    >>> discoveries([0.5, 12.0, 19.0])  # none reaches 20, but two reach 10
    [2, 1]
    >>> discoveries([0.5, 9.0, 19.0])
    []
    """
    order = sorted(range(len(weighted)), key=lambda place: -weighted[place])
    rejected = max((n for n, place in enumerate(order, 1) if weighted[place] * level * n >= 1.0), default=0)
    return order[:rejected]


def adjusted(highest: float) -> float:
    """Return an e-value that is valid at any time, from the highest value that an e-process has reached so far."""
    return (1.0 - KEPT) * highest**KEPT if highest >= 1.0 else 0.0
