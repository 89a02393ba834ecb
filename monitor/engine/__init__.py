"""Which engine answers, and verdicts from samples: `monitor.check`, and what a stream needs of it.

`monitor.decide` answers exactly and `monitor.sampled` draws worlds; here one of them is chosen, the draws are held
against the tests of `monitor.statistics`, and what comes of it is a verdict as good as any, which says how sure it is.
"""

from monitor.engine.api import NO_BOUNDS, check, check_many
from monitor.engine.drawer import Drawer
from monitor.engine.drawing import alone, check_sampling, on_stream, stream_seed
from monitor.engine.engines import NOT_EXACT, Engines

__all__ = [
    "NOT_EXACT",
    "NO_BOUNDS",
    "Drawer",
    "Engines",
    "alone",
    "check",
    "check_many",
    "check_sampling",
    "on_stream",
    "stream_seed",
]
