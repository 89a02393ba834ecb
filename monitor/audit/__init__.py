"""Audits: evaluate Parquet recordings again, under any configuration, by bucket of agents and by date.

`plan.py` plans the work, and `gaps.py` finds gaps in the recordings. `partition.py` evaluates one bucket on one date,
with the code of `run`. `schedule.py` runs partitions in this process or with Dask. `results.py` collects the findings,
and `audit_page.py` writes a page with pictures.
"""
