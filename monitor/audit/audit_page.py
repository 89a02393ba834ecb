"""Report of an audit as one HTML page, with pictures and without scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from monitor.audit.results import OUTCOMES, AlarmDifferences, Findings, Raised
from monitor.picture.svg import ALTERNATIVE, FAINT, NOMINAL, Canvas

MOST_AGENTS: Final = 60
"""Maximum number of agents in the picture, agents with the most alarms first. The other agents share one row."""

MOST_ALARMS: Final = 200
"""Maximum number of alarms in a list of differences."""

CELL: Final = 14
LEFT: Final = 170
SHADES: Final = ("#dceaf3", "#9cc4de", "#4d93bd", "#005a8f")
"""Colours of a cell with 1, 2 to 4, 5 to 9, and more alarms."""

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .2rem .8rem; text-align: left; }
th { border-bottom: 1px solid #1a1a1a; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } .note { color: #a63c00; }
"""


def page(
    title: str,
    *,
    days: Sequence[str],
    found: Findings,
    notes: Sequence[str],
    inputs: Sequence[tuple[str, str]],
    before: tuple[str, AlarmDifferences] | None,
) -> str:
    """Return the page.

    Args:
        title: heading.
        days: all dates of the audit, in order.
        found: findings of the audit.
        notes: sentences that come first: gaps, limits.
        inputs: pairs of a name and a text: configuration, recordings, numbers.
        before: name of the former audit, and the differences from it; None without a comparison.
    """
    dates = sorted({day.partition("~")[0] for day in days} | {alarm.day for alarm in found.raised})
    sections = [
        f"<h1>{escape(title)}</h1>",
        "".join(f'<p class="note">{escape(note)}</p>' for note in notes),
        _table(("", ""), [(name, text) for name, text in inputs]),
        f"<h2>{len(found.raised):,} alarms</h2>",
        _by_formula(found.raised),
        _picture_of_days(found.raised, dates),
        _picture_of_agents(found.raised, dates),
        *_takeovers(found),
        *([] if before is None else _differences(*before, dates)),
    ]
    body = "\n".join(each for each in sections if each)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _table(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in heads)
    lines = ["".join(_cell(value) for value in row) for row in rows]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: object) -> str:
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"


def _by_formula(raised: Sequence[Raised]) -> str:
    counts = Counter(alarm.formula for alarm in raised)
    agents = {name: len({alarm.agent for alarm in raised if alarm.formula == name}) for name in counts}
    return _table(("formula", "alarms", "agents"), [(name, n, agents[name]) for name, n in counts.most_common()])


def _picture_of_days(raised: Sequence[Raised], dates: Sequence[str]) -> str:
    """Return a bar for each day."""
    counts = Counter(alarm.day for alarm in raised)
    most = max(counts.values(), default=0)
    if not most:
        return ""
    canvas = Canvas(_width(dates), "Alarms by day", f"Number of alarms on each of {len(dates)} days, at most {most}.")
    canvas.text((0, 14), "Alarms by day", bold=True)
    canvas.text((LEFT - 8, 30), f"{most:,}", size=12, anchor="end")
    for place, date in enumerate(dates):
        height = 90 * counts[date] / most
        says = f"{date}: {counts[date]:,}"
        canvas.box((LEFT + place * CELL, 116 - height), (CELL - 2, height), fill=ALTERNATIVE, says=says)
    canvas.line((LEFT, 116), (LEFT + CELL * len(dates), 116))
    _dates(canvas, dates, 132)
    return canvas.document(142)


def _picture_of_agents(raised: Sequence[Raised], dates: Sequence[str]) -> str:
    """Return a cell for each agent and day."""
    totals = Counter(alarm.agent for alarm in raised)
    if not totals:
        return ""
    shown = [agent for agent, _ in sorted(totals.items(), key=lambda each: (-each[1], each[0]))[:MOST_AGENTS]]
    other = f"{len(totals) - len(shown):,} other agents"
    known = set(shown)
    counts = Counter((alarm.agent if alarm.agent in known else other, alarm.day) for alarm in raised)
    rows = [*shown, *([other] if len(totals) > len(shown) else [])]
    canvas = Canvas(
        _width(dates),
        "Alarms by agent and day",
        f"Number of alarms of {len(rows)} agents on each of {len(dates)} days.",
    )
    canvas.text((0, 14), "Alarms by agent and day", bold=True)
    for line, agent in enumerate(rows):
        y = 24 + line * CELL
        canvas.text((LEFT - 8, y + 11), agent if len(agent) <= 24 else agent[:23] + "…", size=11, anchor="end")
        for place, date in enumerate(dates):
            if count := counts[agent, date]:
                says = f"{agent}, {date}: {count:,}"
                canvas.box((LEFT + place * CELL, y), (CELL - 2, CELL - 2), fill=_shade(count), says=says)
    bottom = 24 + len(rows) * CELL
    _dates(canvas, dates, bottom + 14)
    for place, (shade, text) in enumerate(zip(SHADES, ("1", "2-4", "5-9", "10 and more"), strict=True)):
        canvas.box((LEFT + place * 80, bottom + 24), (CELL - 2, CELL - 2), fill=shade)
        canvas.text((LEFT + place * 80 + CELL + 2, bottom + 35), text, size=12)
    return canvas.document(bottom + 46)


def _width(dates: Sequence[str]) -> float:
    return max(LEFT + len(dates) * CELL + 60, 560)


def _dates(canvas: Canvas, dates: Sequence[str], y: float) -> None:
    """Label every seventh day."""
    for place in range(0, len(dates), 7):
        canvas.text((LEFT + place * CELL, y), dates[place], size=11, ink=FAINT)


def _shade(count: int) -> str:
    return SHADES[sum(count >= least for least in (2, 5, 10))]


def _takeovers(found: Findings) -> list[str]:
    if not found.takeovers:
        return []
    pairs = sorted({(formula, policy) for formula, policy, _ in found.takeovers})
    rows = [(*pair, *(found.takeovers[*pair, outcome] for outcome in OUTCOMES)) for pair in pairs]
    return ["<h2>Takeovers</h2>", _table(("formula", "policy that took over", *OUTCOMES), rows), _bars(found, pairs)]


def _bars(found: Findings, pairs: Sequence[tuple[str, str]]) -> str:
    """Return a bar of needed and needless takeovers for each formula and policy."""
    most = max(found.takeovers[*pair, outcome] for pair in pairs for outcome in ("needed", "needless"))
    canvas = Canvas(560, "Needed and needless takeovers", "Two bars for each formula and policy.")
    for line, pair in enumerate(pairs):
        y = 8 + line * 46
        canvas.text((0, y + 16), f"{pair[0]}, by {pair[1]}"[:27], size=12)
        for n, (outcome, fill) in enumerate((("needed", ALTERNATIVE), ("needless", NOMINAL))):
            count = found.takeovers[*pair, outcome]
            canvas.box((LEFT, y + n * 18), (260 * count / max(most, 1), 14), fill=fill)
            canvas.text((LEFT + 260 * count / max(most, 1) + 6, y + n * 18 + 12), f"{count:,} {outcome}", size=12)
    return canvas.document(8 + 46 * len(pairs))


def _differences(source: str, change: AlarmDifferences, dates: Sequence[str]) -> list[str]:
    counts = [
        ("raised at the same step", len(change.same)),
        ("raised at another step of the same episode", len(change.moved)),
        ("raised before only", len(change.only_before)),
        ("raised in this audit only", len(change.only_now)),
    ]
    by_day = {name: Counter(each.day for each in alarms) for name, alarms in _changed(change).items()}
    days = [date for date in dates if any(counter[date] for counter in by_day.values())]
    heads = ("day", *by_day)
    return [
        f"<h2>Compared with {escape(source)}</h2>",
        _table(("", "alarms"), counts),
        _table(heads, [(date, *(counter[date] for counter in by_day.values())) for date in days]) if days else "",
        _listed("Raised before only", change.only_before),
        _listed("Raised in this audit only", change.only_now),
    ]


def _changed(change: AlarmDifferences) -> dict[str, list[Raised]]:
    moved = [now for _, now in change.moved]
    return {"moved": moved, "before only": change.only_before, "this audit only": change.only_now}


def _listed(title: str, alarms: Sequence[Raised]) -> str:
    if not alarms:
        return ""
    rows = [(alarm.day, alarm.agent, alarm.formula, alarm.episode, alarm.seq) for alarm in sorted(alarms)[:MOST_ALARMS]]
    rest = f"<p>and {len(alarms) - MOST_ALARMS:,} more</p>" if len(alarms) > MOST_ALARMS else ""
    return f"<h3>{escape(title)}</h3>" + _table(("day", "agent", "formula", "episode", "step"), rows) + rest
