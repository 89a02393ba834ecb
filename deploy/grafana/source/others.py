"""Make a panel for each metric that no other panel shows, from its name, help and kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from frame import HERE
from grafana_foundation_sdk.builders.timeseries import Panel
from panels import graph, query

from monitor.alarm.message import Identity
from monitor.sidecar.sinks.sink import Watched
from monitor.sidecar.sinks.sinks import Sinks

RATE = "[$__rate_interval]"


def others(shown: str) -> Iterator[Panel]:
    """Yield the panels. `shown`: the JSON of the dashboards so far."""
    sinks = Sinks(Watched((), Identity("", "", {}, {}), agents=1, alerts=""))
    text = sinks.metrics.exposition().decode()
    for name, about, kind in re.findall(r"^# HELP (cfmon_\w+) (.*)\n# TYPE \1 (\w+)$", text, re.MULTILINE):
        if re.search(rf"\b{name}(_bucket)?\b", shown):
            continue
        title = name.removeprefix("cfmon_").removesuffix("_total").replace("_", " ").capitalize()
        asked = f"{name}{{{HERE}}}"
        if kind == "histogram":
            asked = f"histogram_quantile(0.95, sum by (le, instance) (rate({name}_bucket{{{HERE}}}{RATE})))"
        elif kind == "counter":
            asked = f"increase({asked}{RATE})"
        labels = re.search(rf"^{name}(?:_bucket)?\{{(.*)\}} ", text, re.MULTILINE)
        named = re.findall(r'(\w+)="', labels[1]) if labels and kind != "histogram" else []
        legend = " ".join(f"{{{{{label}}}}}" for label in ("instance", *named))
        yield graph(
            title, about, [query(asked, legend)], unit="short", bars=kind == "counter", nothing="nothing is scraped"
        )
