"""Benchmarks: the cost of a step, of a start and of a query, measured in the same run as other tools.

`python -m benchmarks` prints the table, and `make bench` also writes it. They run in a checkout only:

    workloads/  the measurements; each returns rows of the table
    peers/      the tools they are compared with, and samplers that compute the same values
    process/    the sidecar as a process, with broker, publisher and probe

If a peer or one of its packages is missing, the row says so and shows our numbers alone.
"""
