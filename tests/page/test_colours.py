"""One palette: that of the status page, in Grafana, the terminal and the documentation; in the same order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from monitor.sidecar.sinks.status_document import FormulaState
from monitor.sidecar.web import page as page_module
from monitor.sidecar.web.fleet_table import STYLES

HERE = Path(__file__).parents[2]
STYLE = Path(page_module.__file__).with_name("static") / "style.css"
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in STYLE.read_text("utf-8").split(":root {")[1:3]
)
NAMED = {"fine": "good"}
"""The colour of a state, where it has another name."""
CHANNELS = {"red": "rgb", "yellow": "rgb", "magenta": "rbg", "green": "gbr"}
"""Of a colour of the terminal: its channels, the strongest first."""
WORDS = {"firing": "FIRING", "pending": "pending", "blind": "BLIND", "unknown": "NOT MONITORED", "fine": "clear"}


def channels(colour: str) -> str:
    strength = {name: int(colour[1 + 2 * n : 3 + 2 * n], 16) for n, name in enumerate("rgb")}
    return "".join(sorted(strength, key=lambda name: -strength[name]))


def test_the_terminal_has_the_order_and_the_hues() -> None:
    assert tuple(STYLES) == get_args(FormulaState)
    for state, style in STYLES.items():
        name = style.split()[-1]
        if name != "bright_black":
            assert channels(DARK[NAMED.get(state, state)])[0] == CHANNELS[name][0], state


def test_grafana_has_the_order_and_the_colours() -> None:
    board = json.loads((HERE / "deploy/grafana/dashboards/fleet.json").read_text("utf-8"))
    [panel] = [each for each in board["panels"] if each["title"] == "Monitors and agents over time"]
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    shown = {each["text"]: (float(value), each["color"]) for value, each in mapping["options"].items()}
    values = [shown[WORDS[state]][0] for state in get_args(FormulaState)]
    assert values == sorted(values, reverse=True), "the table of agents is sorted by them"
    for state in get_args(FormulaState):
        assert shown[WORDS[state]][1] == LIGHT[NAMED.get(state, state)]


@pytest.mark.parametrize(("scheme", "palette"), [("default", LIGHT), ("slate", DARK)])
def test_the_documentation_has_the_colours(scheme: str, palette: dict[str, str]) -> None:
    style = (HERE / "docs/site.css").read_text("utf-8")
    blocks = re.findall(rf'\[data-md-color-scheme="{scheme}"\][^{{]*{{([^}}]*)}}', style)
    used = dict(re.findall(r"--(md-[\w-]+): (#[0-9a-f]+)", " ".join(blocks)))
    assert used["md-typeset-a-color"] == used["md-accent-fg-color"] == palette["link"]
    assert used["md-primary-fg-color"] == (palette["ink"] if scheme == "default" else palette["card"])
