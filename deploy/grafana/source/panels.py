"""Building blocks of the dashboards: queries, value mappings, and the kinds of panel.

Colour is never the only sign: a state is also a word, and a threshold is also a line and in the description. The
colours are read from the style of the status page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "BLIND",
    "GOOD",
    "NO_ANSWER",
    "SOURCE",
    "TROUBLE",
    "WAIT",
    "Words",
    "cells",
    "graph",
    "link",
    "number",
    "query",
    "timeline",
]

STYLE = Path(__file__).resolve().parents[3] / "monitor" / "sidecar" / "web" / "static" / "style.css"
_COLOURS = dict(reversed(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", STYLE.read_text("utf-8"))))  # the first: light
GOOD, WAIT, TROUBLE, BLIND, NO_ANSWER = (_COLOURS[name] for name in ("good", "pending", "firing", "blind", "unknown"))
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

Words = Mapping[float | None, tuple[str, str]]
"""Text and colour for each number. None: no number (NaN)."""


def query(expression: str, legend: str = "", *, letter: str = "A", now: bool = False) -> prometheus.Dataquery:
    """Return a query of a PromQL expression over the time shown or, with `now`, now. `legend` names its series."""
    made = prometheus.Dataquery().expr(expression).ref_id(letter).datasource(SOURCE)
    made = made.legend_format(legend) if legend else made
    return made.instant() if now else made.range()


def _mappings(words: Words) -> list[ValueMapping]:
    numbers = {f"{number:g}": number for number in words if number is not None}
    options = {
        shown: ValueMappingResult(text=words[number][0], color=words[number][1], index=place)
        for place, (shown, number) in enumerate(numbers.items())
    }
    mappings: list[ValueMapping] = [ValueMap(options)] if options else []
    if None in words:
        result = ValueMappingResult(text=words[None][0], color=words[None][1], index=len(options))
        mappings.append(SpecialValueMap(DashboardSpecialValueMapOptions(SpecialValueMatch.NULL_AND_NAN, result)))
    return mappings


def _threshold(limit: float | None, beyond: str = TROUBLE) -> build.ThresholdsConfig:
    steps = [Threshold(value=None, color=GOOD)]
    if limit is not None:
        steps.append(Threshold(value=limit, color=beyond))
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _by_threshold() -> build.FieldColor:
    return build.FieldColor().mode(FieldColorModeId.THRESHOLDS)


def link(title: str, url: str) -> dict[str, str]:
    """Return a link on a value. Grafana replaces `${__data.fields.NAME}` by the value in the clicked row or series."""
    return {"title": title, "url": url}


def number(
    title: str,
    about: str,
    expression: str,
    *,
    words: Words | None = None,
    unit: str = "none",
    limit: float | None = None,
    beyond: str = TROUBLE,
    nothing: str = "no monitor",
    legend: str = "",
    width: int = 4,
) -> stat.Panel:
    """Return a panel with one large number, in the colour `beyond` from `limit` on. `nothing`: text without a value.

    The query asks for the present value, because the last value in the time shown may be old.
    """
    made = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(4)
        .with_target(query(expression, legend, now=True))
        .reduce_options(common_builders.ReduceDataOptions().calcs(["last"]).values(False))
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .mappings(_mappings(words or {}))
        .thresholds(_threshold(limit, beyond))
        .color_scheme(_by_threshold())
        .unit(unit)
        .no_value(nothing)
    )
    return made.text_mode(common.BigValueTextMode.VALUE_AND_NAME) if legend else made


def timeline(
    title: str,
    about: str,
    queries: Sequence[prometheus.Dataquery],
    words: Words,
    *,
    nothing: str = "No data",
    links: Sequence[dict[str, str]] = (),
    height: int = 8,
    width: int = 24,
) -> statetimeline.Panel:
    """Return a panel with the state of each series over time as words; a gap means that there are no data."""
    made = (
        statetimeline.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(height)
        .mappings(_mappings(words))
        .thresholds(_threshold(None))
        .color_scheme(_by_threshold())
        .show_value(common.VisibilityMode.ALWAYS)
        .merge_values(True)
        .row_height(0.85)
        .per_page(20)
        .line_width(1)
        .fill_opacity(85)
        .no_value(nothing)
    )
    if links:
        made = made.override_by_regexp("/.*/", [DynamicConfigValue(id_val="links", value=list(links))])
    for one in queries:
        made = made.with_target(one)
    return made


def graph(
    title: str,
    about: str,
    queries: Sequence[prometheus.Dataquery],
    *,
    unit: str,
    limit: float | None = None,
    least: float | None = 0,
    bars: bool = False,
    nothing: str = "No data",
    width: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Return a panel of numbers over time; NaN leaves a gap. `limit` is drawn as a line, `least` starts the axis."""
    made = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(height)
        .unit(unit)
        .no_value(nothing)
        .span_nulls(False)
        .show_points(common.VisibilityMode.AUTO)
        .line_width(2)
        .fill_opacity(70 if bars else 0)
        .draw_style(common.GraphDrawStyle.BARS if bars else common.GraphDrawStyle.LINE)
        .thresholds(_threshold(limit))
        .legend(
            common_builders.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if limit is not None:
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds_style(style)
    if least is not None:
        made = made.min(least)
    for one in queries:
        made = made.with_target(one)
    return made


def cells(
    title: str,
    about: str,
    queries: Sequence[prometheus.Dataquery],
    *,
    columns: Mapping[str, str],
    hidden: Sequence[str] = (),
    words: Mapping[str, Words] | None = None,
    units: Mapping[str, str] | None = None,
    links: Mapping[str, dict[str, str]] | None = None,
    first: str = "",
    nothing: str = "No data",
    width: int = 24,
    height: int = 8,
) -> table.Panel:
    """Return a table of present values: `columns` maps labels and queries (`Value #A`) to headings, in order.

    `words`, `units` and `links` are keyed by heading. The largest values of the column `first` are first.
    """
    organize: dict[str, Any] = {
        "excludeByName": dict.fromkeys(["Time", "__name__", *hidden], True),
        "indexByName": {name: place for place, name in enumerate(columns)},
        "renameByName": dict(columns),
    }
    made = (
        table.Panel()
        .align(common.FieldTextAlignment.AUTO)
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(height)
        .no_value(nothing)
        .transformations(
            [
                DataTransformerConfig(id_val="merge", options={}),
                DataTransformerConfig(id_val="organize", options=organize),
            ]
        )
    )
    if first:
        made = made.sort_by([common_builders.TableSortByFieldState().display_name(first).desc(True)])
    for one in queries:
        made = made.with_target(one.format(PromQueryFormat.TABLE))
    for heading in columns.values():
        properties = _properties(heading, words or {}, units or {}, links or {})
        if properties:
            made = made.override_by_name(heading, properties)
    return made


def _properties(
    heading: str, words: Mapping[str, Words], units: Mapping[str, str], links: Mapping[str, dict[str, str]]
) -> list[DynamicConfigValue]:
    found: list[DynamicConfigValue] = []
    if heading in words:
        found.append(DynamicConfigValue(id_val="mappings", value=_mappings(words[heading])))
        found.append(
            DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-background", "mode": "basic"})
        )
    if heading in units:
        found.append(DynamicConfigValue(id_val="unit", value=units[heading]))
    if heading in links:
        found.append(DynamicConfigValue(id_val="links", value=[links[heading]]))
    return found
