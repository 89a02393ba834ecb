"""Mutation tests of the pure rooms: small wrong changes of the source, each of which some test must notice.

`python -m tests.mutation` (`make mutants`) runs them. Why not a ready-made tool: mutmut 3.8 leaves out every function
with a decorator but `staticmethod` and `classmethod`, hence all properties; cosmic-ray 8.7 starts the test command anew
for each mutant, which takes seconds. Here the tests are collected once, with the sources of compiled modules in place
of their machine code (`MONITOR_UNCOMPILED=1`), and run once under coverage; then a fork for each mutant puts the
changed function into place and runs those tests that reach the changed line, the quickest first.
"""
