"""Proposals for a first configuration: policies from a model, and a formula measured on recorded paths.

`policies.py`: a deployed policy from frequencies, and a fallback by backward induction. `paths.py`: recorded or
simulated paths. `measure.py`: candidate formulas replayed through the monitor. `rules.py`: the rule that chooses one.
"""
