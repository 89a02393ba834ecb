"""Independent evaluators of PCFTL queries, nothing of `monitor` in them.

`evaluate`: known models, by explicit trees of paths in fractions. `guaranteed`: learned models, by linear programs over
couplings of the rows in their confidence set; `learned` builds such models.
"""
