"""The job with a function that does nothing, for `flink_speed`: what Flink itself costs."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from unittest.mock import patch

from pyflink.datastream import KeyedProcessFunction


class Nothing(KeyedProcessFunction):  # type: ignore[misc] # Flink has no types
    """Takes batches, and forgets them."""

    def __init__(self, settings: object) -> None:
        del settings

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> list[str]:
        """Return no message."""
        del value, ctx
        return []


if __name__ == "__main__":
    with patch("cfmon_flink.graph.Monitoring", Nothing):
        run_path(str(Path(__file__).parents[2] / "deploy" / "flink" / "job.py"), run_name="__main__")
