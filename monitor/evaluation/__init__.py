"""Choose an engine, and compute verdicts from samples, for `monitor.check` and for a stream.

`monitor.exact` evaluates exactly, and `monitor.sampled` draws samples. This package chooses one of them, applies the
tests of `monitor.statistics` to the samples, and returns a verdict with its confidence.
"""

from monitor.evaluation.check import NO_BOUNDS, check, check_many
from monitor.evaluation.credible import check_band_settings
from monitor.evaluation.engines import (
    NOT_EXACT,
    Engines,
    Held,
    HiddenEngines,
    Names,
    TableEngines,
    WorldEngines,
    engines_of,
)
from monitor.evaluation.hindsight import recourse
from monitor.evaluation.sampled_checker import SampledChecker
from monitor.evaluation.seeding import (
    alone,
    check_sampling,
    on_stream,
    stream_seed,
)

__all__ = [
    "NOT_EXACT",
    "NO_BOUNDS",
    "Engines",
    "Held",
    "HiddenEngines",
    "Names",
    "SampledChecker",
    "TableEngines",
    "WorldEngines",
    "alone",
    "check",
    "check_band_settings",
    "check_many",
    "check_sampling",
    "engines_of",
    "on_stream",
    "recourse",
    "stream_seed",
]
