"""Find the number of a subtask, which PyFlink 2.3 does not give in thread mode."""

from __future__ import annotations

from pyflink.datastream import RuntimeContext

__all__ = ["subtask_number"]


def subtask_number(context: RuntimeContext) -> int:
    """Return the number of this subtask, from 0.

    `RuntimeContext.get_index_of_this_subtask` calls a Java method that Flink 2 has moved to `TaskInfo`.
    """
    return int(context._runtime_context.getTaskInfo().getIndexOfThisSubtask())  # noqa: SLF001 - there is no other way
