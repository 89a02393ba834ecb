"""Proposals for a first configuration: policies from a model, and a formula measured on recorded paths.

`policies.py` estimates the deployed policy from frequencies, and a fallback by backward induction. `paths.py` has
recorded or simulated paths. `measure.py` replays candidate formulas through the monitor. `rules.py` chooses a formula.
"""
