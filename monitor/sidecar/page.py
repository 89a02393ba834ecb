"""The status page: one plain HTML document, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

__all__ = ["render"]

HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>Counterfactual monitor</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; width: 100%; margin: .5em 0 2em; }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
.firing { color: #a40000; font-weight: bold; } .pending, .blind { color: #8a5a00; }
</style></head><body>
<h1>Counterfactual monitor</h1>
"""
FOOT: Final = """<p><a href="/metrics">metrics</a> · <a href="/api/status">status</a> · <a href="/api/agents">agents</a>
· <a href="/api/alarms">alarms</a> · <a href="/api/formulas">formulas</a></p></body></html>
"""


def render(status: dict[str, Any], agents: Sequence[dict[str, Any]], alarms: Sequence[dict[str, Any]]) -> str:
    """The page, from what `/api/status`, `/api/agents` and `/api/alarms` return. Everything shown is escaped."""
    return "".join(
        [
            HEAD,
            _status(status),
            "<h2>Alarms</h2>",
            _table(("state", "agent", "formula", "since", "what it means", ""), [_alarm(alarm) for alarm in alarms]),
            "<h2>Agents</h2>",
            _table(
                ("agent", "last heard", "formula", "alarm", "outcome", "value", "effect", "step"),
                [cells for agent in agents for cells in _agent(agent)],
            ),
            FOOT,
        ]
    )


def _status(status: dict[str, Any]) -> str:
    connection = "connected to" if status["connected"] else "<strong>not connected</strong> to"
    model = status["model"]
    return (
        f"<p>{connection} {escape(status['broker'])} as {escape(status['client_id'])}; "
        f"model {escape(model['name'])} <code>{escape(model['sha256'][:12])}</code>; "
        f"version {escape(status['version'])}; {status['queue']} messages waiting</p>"
    )


def _alarm(alarm: dict[str, Any]) -> tuple[str, ...]:
    evidence = alarm["evidence"]
    link = f'<a href="/evidence/{escape(evidence)}">evidence</a>' if evidence else ""
    blind = f' <span class="blind">blind: {escape(alarm["blind"])}</span>' if alarm["blind"] else ""
    return (
        f'<span class="{escape(alarm["state"])}">{escape(alarm["state"])}</span>{blind}',
        escape(alarm["agent"]),
        escape(alarm["formula"]["name"]),
        _clock(alarm["since"]),
        escape(alarm["summary"]),
        link,
    )


def _agent(agent: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for index, formula in enumerate(agent["formulas"]):
        blind = f' <span class="blind">blind: {escape(formula["blind"])}</span>' if formula["blind"] else ""
        rows.append(
            (
                escape(agent["name"]) if index == 0 else "",
                _clock(agent["last_message"]) if index == 0 else "",
                escape(formula["name"]),
                f'<span class="{escape(formula["alarm"])}">{escape(formula["alarm"])}</span>{blind}',
                escape(formula["outcome"] or ""),
                _figure(formula["value"]),
                _figure(formula["effect"]),
                "" if formula["seq"] is None else str(formula["seq"]),
            )
        )
    return rows


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of cells that are HTML already."""
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # an agent's clock may say anything
        return ""
