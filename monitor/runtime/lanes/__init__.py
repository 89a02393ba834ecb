"""The short way of ordinary steps, in compiled code: in order, possible, of an agent about whom nothing else is open.

A *lane* has what the objects of `monitor.stream.session`, `monitor.runtime.agent` and `monitor.runtime.formula` hold of
one agent, as numbers. While it is open they are out of date; closing it brings them up to date. It takes a step only if
the ordinary way would do the same with it, to the bit, and leaves every other one to that; the test
`tests/runtime/test_lanes.py` runs both side by side. So what a step means is defined there, and a lane is a cache, like
the forward states of `monitor.exact.forward`.

`layout.py`: what is where. `accept.py`, `take.py`: the two halves of a step, compiled; `bets.py`: its part in the tests
of the model. `payload.py`, `text.py`, `spelling.py`: messages, read as they are. `lane.py`: one agent's, and how it
opens and closes. `tables.py`, `verdicts.py`, `obligations.py`: what lanes share. Where nobody reads notices: `run.py`,
recorded events of many agents; `batch.py`, messages of agents with a monitor each; `combination.py`, the tests of the
model.
"""
