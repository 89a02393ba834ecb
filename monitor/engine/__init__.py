"""Which engine answers, and verdicts from samples: `monitor.check`, and what a stream needs of it.

`monitor.exact` answers exactly and `monitor.sampled` draws worlds; here one of them is chosen, the draws are held
against the tests of `monitor.statistics`, and what comes of it is a verdict as good as any, which says how sure it is.
"""

from monitor.engine.check import NO_BOUNDS, check, check_many
from monitor.engine.choice import NOT_EXACT, Engines
from monitor.engine.sampled_checker import SampledChecker
from monitor.engine.seeding import (
    alone,
    check_sampling,
    on_stream,
    stream_seed,
)

__all__ = [
    "NOT_EXACT",
    "NO_BOUNDS",
    "Engines",
    "SampledChecker",
    "alone",
    "check",
    "check_many",
    "check_sampling",
    "on_stream",
    "stream_seed",
]
