"""Decisions from samples: sequential tests, sample sizes, intervals, and error rates over a stream.

Samples are arguments. Nothing here draws random numbers, reads a clock or knows formulas.

A sequential test has one method, `decide(samples)`, which runs many tests at once on samples [..., N]. For each test it
returns the number of samples used and the side: 1 (true), -1 (false) or 0 (undecided). Once a sample decides the test,
later samples do not matter.

Which test to use:

- a probability against a threshold: `Sprt`; a reward or an effect: `RegionBets`; Boolean combinations: `combine`;
- a number (`=?`): `sample_size` and `clopper_pearson`;
- on a stream: `ConfidenceSequence` or `ThresholdBets` within a verdict, and `share_of_stream` across verdicts.

`TSprt` with `EqualOutcome` is the paper's test of a reward or an effect. Its error rates are valid for normal samples
only.
"""
