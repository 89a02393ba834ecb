"""Estimation of a model from recorded steps, with its counts: `cfmon model learn`.

`Learner` shows the route: batches of rows become transitions and visits (`episodes`), in states (`abstraction`); a
`Tally` counts them, and `learned_model` makes a model of it. Memory grows with the number of different transitions, not
with the number of rows. Only the readers (`row_files` and what it opens), `state_functions` and `companion` read or
write files.
"""
