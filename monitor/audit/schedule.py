"""Compute the partitions of an audit in this process, in processes on this machine, or on a Dask cluster.

The days of a bucket are computed in order. Buckets are independent of each other. Existing results are not computed
again, so a stopped audit can be continued. If a worker is killed, another worker computes its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, Final

from monitor.audit.partition import run_partition
from monitor.audit.plan import Partition
from monitor.errors import ConfigError, MonitorError, to_install

DEATHS: Final = 5
"""Number of workers that may die while computing one partition before the audit fails."""


def run_all(
    plan: Mapping[int, Sequence[Partition]],
    report: Callable[[int], None],
    *,
    workers: int = 1,
    scheduler: str | None = None,
) -> None:
    """Compute all partitions whose results do not exist yet.

    Args:
        plan: bucket -> its partitions in order.
        report: called with the number of existing results.
        workers: number of processes on this machine; 1 means this process.
        scheduler: address of the scheduler of a Dask cluster; if given, the cluster is used instead of this machine.

    Raises ConfigError if Dask is not installed, if the scheduler cannot be reached, or if workers die repeatedly.
    """
    waiting = {bucket: _rest(parts) for bucket, parts in plan.items()}
    total = sum(map(len, plan.values()))
    done = total - sum(map(len, waiting.values()))
    report(done)
    if done == total:
        return
    finished = _here(waiting) if workers == 1 and scheduler is None else _by_dask(waiting, workers, scheduler)
    for _ in finished:
        done += 1
        report(done)


def _rest(parts: Sequence[Partition]) -> list[Partition]:
    """Return the first partition that has no result, and all later partitions."""
    first = next((n for n, part in enumerate(parts) if not part.done), len(parts))
    return list(parts[first:])


def _here(plan: Mapping[int, Sequence[Partition]]) -> Iterator[str]:
    for part in _by_day(plan):
        yield run_partition(part)


def _by_day(plan: Mapping[int, Sequence[Partition]]) -> Iterator[Partition]:
    """Yield the partitions day by day, so that files that all buckets need are read once."""
    for row in zip_longest(*plan.values()):
        yield from (part for part in row if part is not None)


def _by_dask(plan: Mapping[int, Sequence[Partition]], workers: int, scheduler: str | None) -> Iterator[str]:
    try:
        import distributed  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise ConfigError(f"several workers need Dask: {to_install('audit')}; or use --workers 1") from error

    with _client(workers, scheduler) as client:
        after: dict[int, Any] = {}
        futures = []
        for part in _by_day(plan):
            task = client.submit(_computed, part, after.get(part.bucket), key=f"audit-{part.key}", pure=False)
            after[part.bucket] = task
            futures.append(task)
        try:
            completed: Any = distributed.as_completed  # dask has no types
            for future in completed(futures):
                if isinstance(found := future.result(), MonitorError):
                    raise found
                yield found
        except distributed.KilledWorker as error:
            raise ConfigError(f"{DEATHS} workers died over one partition; do they have enough memory?") from error


def _computed(partition: Partition, before: str | MonitorError | None) -> str | MonitorError:
    """Compute a partition in a worker; return its key, or a user's error.

    The error is returned, because Dask would log a raised error as a bug. `before`: key or error of the previous day;
    after an error, the rest of the bucket is not computed.
    """
    if isinstance(before, MonitorError):
        return before
    try:
        return run_partition(partition)
    except MonitorError as error:
        return error


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Any]:
    import dask  # noqa: PLC0415 - an optional extra
    import distributed  # noqa: PLC0415 - likewise

    library: Any = distributed  # some of its functions have no types
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        if scheduler is None:
            # The futures return errors for the user. The remaining error logs are Dask's own, for example about a
            # heartbeat that was in progress when its worker was closed.
            with (
                library.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
                ) as cluster,
                library.Client(cluster) as client,
            ):
                yield client
            return
        try:
            client = library.Client(scheduler)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the scheduler {scheduler} cannot be reached: {error}") from error
        with client:
            yield client
