"""End markers as conditions on columns, such as `end in ["crash", "done"]`, computed as the rows are read. Impure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.conditions import marker_condition
from monitor.authoring.learning.row_files import START, FilePosition, RowsOf


class WithMarkers(RowsOf):
    """File of rows in which a condition may be read like a column."""

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns. Columns that are conditions are computed."""
        names = self.names()
        conditions = {name: found for name in wanted if (found := marker_condition(names, name)) is not None}
        read = [name for name in wanted if name not in conditions]
        read += [name for condition in conditions.values() for name in condition.columns]
        for batch in self._rows.batches(list(dict.fromkeys(read)), begin):
            computed = {name: condition.holds(batch.columns, len(batch)) for name, condition in conditions.items()}
            yield replace(batch, columns={**batch.columns, **computed}) if computed else batch
