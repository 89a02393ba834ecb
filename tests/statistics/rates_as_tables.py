"""The measured error rates as the page `docs/experiments.md` shows them: two tables, made from the rows of the CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.statistics.measured import Row

__all__ = ["markdown"]

PROCEDURES = {
    "SPRT theta": "SPRT (Wald)",
    "t-SPRT normal": "t-SPRT, normal samples",
    "betting, no region": "betting without a region (streams), at the bound itself",
    "equal outcomes": "equal outcomes",
    "combination": "Boolean combinations of SPRTs",
    "confidence sequence": "betting confidence sequence, at any of 2,000 samples",
    "Hoeffding": "Hoeffding's sizes",
    "Clopper-Pearson": "Clopper-Pearson interval",
    "normal interval": "normal interval",
    "t interval": "t interval",
    "SPRT at message": "SPRT at the fraction of alpha of message 1 to 1,000,000",
    "stream of 10000": "stream of 10,000 messages, SPRT, the rule: streams with an alarm",
    "stream of 1000 ": "stream of 1,000 messages, betting, the rule: streams with an alarm",
    "stream of 200 messages, SPRT, the rule": "stream of 200 messages, SPRT, the rule: breaches missed",
    "stream of 200 messages, SPRT, every": "stream of 200 messages, every test at .05: streams with an alarm",
    "verdict, ": "verdicts, one test and nested combinations",
    "regret by sampling": "regret by sampling",
    "verdict on a stream": "verdicts on a stream, at the bound itself",
    "interval beside a test": "interval reported beside a test, at its stop",
    "interval of =?": "interval of `=?`, alone and on a stream",
    "model test, bounds": "test of a learned model, on 1,000 steps from the environment of its recordings",
    "model test, taken": "the same, its rows taken as exact",
    "named wrongly": "rows and agents named as contradicting the model that do not, in runs of 3,200 steps",
    "named wrongly, against": "the same for rows, if all agents have the same noise",
}
"""How the name of a row begins -> what the page calls it."""


def markdown(rows: Sequence[Row]) -> str:
    """Return both tables."""
    return "\n".join([*_effects(rows), "", *_procedures(rows)]) + "\n"


def _effects(rows: Sequence[Row]) -> Iterator[str]:
    """Betting beside the t-test, law by law."""
    yield "| samples | betting, 5 % | t-SPRT, 5 % | betting, 1 % | t-SPRT, 1 % | samples taken at 5 % |"
    yield "|---|---|---|---|---|---|"
    known = {(row.what, row.where): row for row in rows}
    laws = [row.what.removeprefix("t-SPRT, ").removesuffix(" <0.05,0.05>") for row in rows if _is_effect(row)]
    for law in dict.fromkeys(laws):
        cells, taken = [], []
        for level in ("<0.05,0.05>", "<0.01,0.01>"):
            for test in ("betting", "t-SPRT"):
                pair = [known[f"{test}, {law} {level}", where] for where in ("above", "below")]
                cells.append(", ".join(f"{100 * row.rate:.2f}" for row in pair))
                taken.append(f"{sum(row.samples for row in pair) / 2:,.0f}")
        yield f"| {law} | {' | '.join(cells)} | {taken[0]}, {taken[1]} |"


def _is_effect(row: Row) -> bool:
    return row.what.startswith("t-SPRT, ") and row.what.endswith("<0.05,0.05>") and row.where == "above"


def _procedures(rows: Sequence[Row]) -> Iterator[str]:
    """Of each procedure the measurement that came nearest to its limit, or beyond it."""
    yield "| procedure | measurements | the one nearest to its limit | errors | limit | samples |"
    yield "|---|---|---|---|---|---|"
    for begin, name in PROCEDURES.items():
        group = [row for row in rows if row.what.startswith(begin)]
        promised = [row for row in group if row.limit is not None]
        worst = max(promised or group, key=lambda row: row.rate / (row.limit or 1.0))
        limit = "nominal" if worst.limit is None else f"{100 * worst.limit:.3g} %"
        exact = "" if worst.exact is None else f" (exactly {100 * worst.exact:.2f} %)"
        yield (
            f"| {name} | {len(group)} | {worst.where} | {worst.errors:,} of {worst.runs:,}{exact} | {limit} "
            f"| {worst.samples:,.0f} |"
        )
