"""Decisions from samples: sequential tests, sample sizes, intervals, and error rates over a stream.

Samples are arguments. Nothing here draws random numbers, reads a clock or knows formulas. A decision is True, False, or
None if the test is undecided after the given samples.

A sequential test has one method: `decide(samples)`, for many tests at once [..., N]. It returns the number of samples
used and the side; samples after the one that decides do not matter.

Which test to use:

- a probability against a threshold: `Sprt`; a reward or an effect: `RegionBets`; Boolean combinations: `combine`;
- a number (`=?`): `sample_size` and `clopper_pearson`;
- on a stream: `ConfidenceSequence` or `ThresholdBets` within a verdict, and `share_of_stream` across verdicts.

`TSprt` with `EqualOutcome` is the paper's test of a reward or an effect. Its error rates are valid for normal samples
only.
"""
