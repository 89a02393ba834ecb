"""Page of a report of `cfmon model learn --report`, as Markdown, or as HTML with charts. The HTML loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from monitor.atomic import write_file
from monitor.errors import ModelError

STYLE: Final = """
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .2rem .8rem .2rem 0; text-align: left; }
td { font-variant-numeric: tabular-nums; border-top: 1px solid #c8c8c8; } svg { max-width: 100%; height: auto; }
.result { padding: .6rem 1rem; border-left: .4rem solid #005a8f; } .result.bad { border-color: #a63c00; }
@media (prefers-color-scheme: dark) { body { background: #14171a; color: #ececec; } td { border-color: #3d4349; } }
"""

ReportRow = tuple[str, ...]
ReportSection = tuple[str, str, ReportRow, list[ReportRow]]
"""Heading, explanation, head and rows of a table."""


@dataclass(frozen=True)
class Page:
    """A report.

    `result`: a first sentence, then reasons if it is bad. `about`: which data the checks used. `charts`: heading of a
    section -> SVG. `bad`: mark the result as bad even if it has no reasons.
    """

    title: str
    result: Sequence[str]
    about: str
    sections: Sequence[ReportSection]
    charts: Mapping[str, str] = field(default_factory=dict)
    bad: bool = False


def check_reports(paths: Sequence[Path]) -> None:
    """Raise ModelError unless the name of each report ends with .html or .md."""
    for path in paths:
        if path.suffix not in (".html", ".md"):
            raise ModelError(f"{path}: the name ends with .html or .md, as a report is a page")


def write_page(page: Page, paths: Sequence[Path]) -> None:
    """Write the page to each path, in the format of its ending. Raises ModelError if a file cannot be written."""
    for path in paths:
        try:
            write_file(path, (_html if path.suffix == ".html" else _markdown)(page).encode())
        except OSError as error:
            raise ModelError(f"{path}: cannot be written: {error.strerror}") from error


def _markdown(page: Page) -> str:
    first, *problems = page.result
    lines = [f"# {page.title}", "", f"**{first}**", "", *[f"- {each}" for each in problems], "" if problems else None]
    lines += [page.about, ""]
    for heading, text, head, rows in page.sections:
        lines += [f"## {heading}", "", text, ""]
        lines += [_pipes(head), _pipes(["---"] * len(head)), *[_pipes(row) for row in rows], ""]
    return "\n".join(line for line in lines if line is not None)


def _html(page: Page) -> str:
    first, *problems = page.result
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    bad = " bad" if problems or page.bad else ""
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f'<div class="result{bad}"><strong>{escape(first)}</strong><ul>{items}</ul></div>',
        f"<p>{escape(page.about)}</p>",
    ]
    for heading, text, head, rows in page.sections:
        body += [f"<h2>{escape(heading)}</h2><p>{escape(text)}</p>", page.charts.get(heading, ""), _table(head, rows)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(page.title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>'
        + "\n".join(body)
        + "</body></html>\n"
    )


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(head: ReportRow, rows: Sequence[ReportRow]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    inside = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{inside}</table>"
