"""How often whole verdicts err, in short; the long form is `python -m tests.statistics.error_rates --only verdicts`."""

from __future__ import annotations

from tests.evaluation import verdict_rates
from tests.tiers import examples, scaled


@scaled
def test_every_kind_of_verdict_keeps_its_error_rate() -> None:
    """A correct engine fails here with probability 1e-6 at most, over all kinds together."""
    rows = list(verdict_rates.rows(examples(12, 60)))
    assert len(rows) > 30
    assert [row for row in rows if not row.within(len(rows))] == []
    assert all(row.undecided == 0 for row in rows if "stream" not in row.what)
