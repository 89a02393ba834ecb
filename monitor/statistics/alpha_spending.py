"""Alpha spending allows tests at every message of an endless stream, with one false-alarm rate for the whole stream.

A test repeated at every message raises an unlimited number of false alarms. At alpha = 0.05, it raises about 500 in
10,000 messages. Here, test n of a stream rejects a true formula with probability at most
alpha_n = alpha (1/log2(n+1) - 1/log2(n+2)).

Proof. The sum telescopes: the fractions alpha_n/alpha of the first N tests sum to 1 - 1/log2(N+2) < 1. So P(any test
rejects a true formula) <= sum of alpha_n < alpha, for any number of messages. Paths overlap and noise is reused, so the
tests may depend on each other; the union bound needs no independence. With Wald's thresholds the actual error rate may
exceed the nominal rate by a factor (see `Strength`), so test n is made at alpha_n (1 - beta). QED

Each test requires that its samples have the distribution of the query's world, conditionally on the query. If an agent
reacts to alarms, later queries depend on earlier samples. Then each message needs fresh noise. For an `Sprt`, a formula
counts as "true" if its probability is beyond the indifference region. `ThresholdBets` has no indifference region.

Beta, the probability of accepting a false formula, is bounded for each test, but not over the stream. If a failure
lasts, it is tested again at the next message. With k formulas on one stream, alpha bounds the rate of each formula. To
bound the probability for all k together, use alpha/k for each formula.

Cost. Test n rejects when its likelihood ratio reaches A ~ 1/alpha_n. A single test with alpha = 0.05 needs evidence of
log A = 3.0 nats. Test n needs log(alpha/alpha_n) nats more: 14.0 at the 10,000th test, 19.4 at the millionth. The usual
weights 6/(pi n)^2 would need 18.9 and 28.1 nats more. If the formula is true, the test ends when the ratio reaches
B ~ beta, which is nearly the same for all n. So the usual verdict, "true", costs the same as in a single test.

A test that is still undecided after its last sample also spends its fraction of alpha.
"""

from __future__ import annotations

import math

from monitor.errors import ConfigError
from monitor.statistics.strength import Strength


def fraction(n: int) -> float:
    """Return the fraction of a stream's alpha for its n-th test, n >= 1 (else ConfigError). All fractions sum to 1.

    >>> [round(fraction(n), 4) for n in (1, 2, 3)]
    [0.3691, 0.1309, 0.0693]
    """
    if n < 1:
        raise ConfigError(f"tests are numbered from 1, not {n}")
    # 1/log2(n+1) - 1/log2(n+2), in a form that does not cancel for large n
    return math.log(2.0) * math.log1p(1.0 / (n + 1)) / (math.log(n + 1) * math.log(n + 2))


def share_of_stream(strength: Strength, n: int) -> Strength:
    """Return the strength of the n-th test, n >= 1, of one formula on one stream.

    `strength.alpha` is the false-alarm rate of the stream, `strength.beta` that of each test.

    >>> first = share_of_stream(Strength(0.05, 0.01), 1)
    >>> round(first.alpha, 4), first.beta
    (0.0183, 0.01)
    """
    return Strength(strength.alpha * fraction(n) * (1.0 - strength.beta), strength.beta)
