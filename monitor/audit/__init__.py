"""Audits: recordings as Parquet evaluated again, under any configuration, by bucket of agents and by date.

`plan.py`: what is to be done; `gaps.py`: what the recordings lack; `partition.py`: one bucket on one date, by the code
of `run`; `schedule.py`: in this process, or by Dask; `results.py`: what was found; `audit_page.py`: a page with
pictures.
"""
