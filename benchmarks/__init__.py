"""The benchmark: the cost of a step, a start and a query, measured in the same run as other tools.

`python -m benchmarks` prints the table, `make bench` also writes it. It runs in a checkout only and is not installed:

    workloads/  the measurements; each gives rows of the table
    peers/      what they are compared with: other tools, and samplers of the same answers
    process/    the sidecar as a process: broker, publisher, probe

Without a peer, or without what it needs, a row says so and shows our numbers alone.
"""
