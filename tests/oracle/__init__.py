"""Independent evaluators of PCFTL queries, nothing of `monitor` in them.

`evaluate`: known models, by explicit trees of paths in fractions. `recourse`: the best possible decisions, by induction
beside the enumeration of `strategies`; `responsibility`: which decision it was. `guaranteed`: learned models, by linear
programs over couplings of the rows in their confidence set; `learned` builds such models.
"""
