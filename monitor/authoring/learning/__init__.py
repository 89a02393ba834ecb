"""Estimate a model, with its counts, from recorded steps: `cfmon model learn`.

`Learner` shows the order of the work. `episodes` turns batches of rows into transitions and visits, and `abstraction`
gives them states. A `Tally` counts them, and `learned_model` makes a model of the counts. Memory grows with the number
of different transitions, not with the number of rows. Only `row_files` and the readers that it opens, `state_functions`
and `companion` read or write files.
"""
