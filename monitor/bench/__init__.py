"""`cfmon bench`: what a step, a start and a question cost, beside what other tools ask for theirs, in one run.

The peers are no part of this package: they are loaded by file path from a folder (`tests/bench` in a checkout). Without
them, or without what they need, a row says so and shows our numbers alone.
"""
