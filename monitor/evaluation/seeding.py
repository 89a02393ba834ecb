"""Seed and error rates of a sampled verdict, for a single query or for one of many verdicts on a stream."""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import get_args

from monitor.errors import ConfigError
from monitor.statistics.alpha_spending import share_of_stream
from monitor.statistics.strength import Strength
from monitor.types.specs import AlarmSpec, Sampling, TestName
from monitor.types.stream_events import Episode
from monitor.types.verdicts import Drawn

SEEDS = 1 << 53
"""Seeds are numbers below this limit, which JSON represents exactly."""
LEAST = 1e-30
"""Minimum of a probability or width in the settings, so that its share for one test on a stream is above 0."""
MOST_SAMPLES = 10_000_000
"""Maximum limit of samples for one quantity."""


def check_sampling(sampling: Sampling) -> Sampling:
    """Return the settings. Raises ConfigError, which names the first setting that is not allowed."""
    if not (isinstance(sampling.seed, int) and 0 <= sampling.seed < SEEDS):
        raise ConfigError(f"sampling.seed must be a whole number from 0 to 2**53 - 1, not {sampling.seed}")
    for name in ("alpha", "beta", "delta", "error", "error_alpha"):
        value = getattr(sampling, name)
        if not LEAST <= value < 1.0:
            raise ConfigError(
                f"sampling.{name} must lie strictly between 0 and 1, not {value:g} (and not below {LEAST})"
            )
    if sampling.alpha + sampling.beta >= 1.0:
        raise ConfigError(f"sampling.alpha and beta must sum to less than 1, not {sampling.alpha} + {sampling.beta}")
    if not LEAST <= sampling.deviation <= 1.0 / LEAST:
        raise ConfigError(f"sampling.deviation counts standard deviations, {LEAST} or more, not {sampling.deviation}")
    if not (isinstance(sampling.limit, int) and 1 <= sampling.limit <= MOST_SAMPLES):
        raise ConfigError(f"sampling.limit counts samples, from 1 to {MOST_SAMPLES}, not {sampling.limit}")
    if sampling.test not in get_args(TestName):
        raise ConfigError(f"sampling.test {sampling.test!r} does not exist; use {' or '.join(get_args(TestName))}")
    if sampling.rewards is not None and not -math.inf < sampling.rewards[0] <= sampling.rewards[1] < math.inf:
        raise ConfigError(f"sampling.rewards is the smallest and the largest of a step, not {sampling.rewards}")
    return sampling


def alone(sampling: Sampling, first: int = 0) -> Drawn:
    """Return the seed and the error rates of a single query."""
    return Drawn(sampling, sampling.seed, first, sampling.alpha, sampling.beta)


def on_stream(
    sampling: Sampling, alarm: AlarmSpec, *, stream: tuple[str, Episode, str], seq: int, first: int, test: int
) -> Drawn:
    """Return a fresh seed and the share of the stream's alpha for the `test`-th verdict of a formula on a stream.

    Args:
        sampling: `alpha` is the false-alarm rate of the whole stream (proof: `monitor.statistics.alpha_spending`).
        alarm: alarm of the formula. If the alarm fires when the formula holds, a false *true* is a false alarm, and
            alpha is the rate of false *true*.
        stream: agent, episode and name of the formula.
        seq: seq of the last step of the path.
        first: seq of the first step of the path.
        test: number of the test, from 1.
    """
    strength = share_of_stream(Strength(sampling.alpha, sampling.beta), test)
    if alarm.fires_while == "holds":
        strength = strength.negated
    return Drawn(sampling, stream_seed(sampling.seed, stream, seq, test), first, strength.alpha, strength.beta, test)


def stream_seed(seed: int, stream: tuple[str, Episode, str], seq: int, test: int) -> int:
    """Return the seed of one verdict's noise.

    Each verdict has a new seed, so an agent that reacts to alarms never gets the same noise again. The seed depends
    only on the arguments, so a replay draws the same numbers.
    """
    content = json.dumps([seed, *stream, seq, test]).encode("ascii")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") % SEEDS
