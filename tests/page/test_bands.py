"""Bands of a learned model on the page: drawn beside the value, and in words; nothing on any other model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from tests.page.conftest import Scene, unfold
from tests.page.test_page import SOON, accessible
from tests.runtime.test_learned_streams import ROAD, road
from tests.sidecar.project import write_project
from tests.tiers import slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONFIG = """\
model: model.npz
policies: {nominal: rash.yaml, careful: careful.yaml}
bands: {draws: 39}
formulas:
  - {name: fall, formula: 'regret(careful@1, P>=0.8 [ G<=3 !"bad" ])', causal_model: any}
  - {name: plain, formula: 'P>=0.8 [ G<=3 !"bad" ]'}
  - {name: several, formula: 'P>=0.99 [ G<=3 !"bad" ] & P>=0.1 [ G<=3 !"home" ]'}
  - {name: unbanded, formula: 'P>=0.8 [ G<=3 !"bad" ]', bands: 'off'}
"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """One agent on a learned model, which walks where it should crawl."""
    scene = Scene(tmp_path, write_project(tmp_path / "project", road(), CONFIG))
    for _ in range(3):
        scene.step("ada", ROAD)
    return scene


def shown(scene: Scene) -> dict[str, Any]:
    """Return the first formula's document, which the page shows."""
    agent = scene.board.agent("ada")
    assert agent is not None
    formula: dict[str, Any] = agent["formulas"][0]
    return formula


def test_the_bands_are_drawn_and_said(page: Page, served: str, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    page.goto(f"{served}/agent?name=ada")
    unfold(page)
    section = page.locator("#formula-fall .bands")
    expect(section.locator("tbody tr")).to_have_count(2, timeout=SOON)
    told = shown(scene)
    assert section.locator("th").all_inner_texts()[2:4] == ["credible (95 %)", "guaranteed (95 %)"]
    for row, value, name in zip(
        section.locator("tbody tr").all(), (told, told["alternative"]), ("value", "alternative"), strict=True
    ):
        bands = told["bands"][name]
        words = [f"{low:.4f} to {high:.4f}" for low, high in (bands["credible"], bands["guaranteed"])]
        whose = "nominal" if name == "value" else "careful"
        assert row.locator("td").all_inner_texts()[:5] == [whose, f"{value['value']:.4f}", *words, "10"]
        spoken = row.locator("svg").get_attribute("aria-label")
        assert spoken == f"{whose}: {value['value']:.4f}, credible {words[0]}, guaranteed {words[1]}"
        inner, outer = (row.locator(f"svg .{kind}").bounding_box() for kind in ("credible", "guaranteed"))
        assert inner is not None
        assert outer is not None
        assert outer["x"] <= inner["x"] + 2
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"] + 2
    text = section.inner_text()
    assert "rests on at least 10 visits" in text
    assert "record more visits of: action 0 in state 0" in text
    assert "39 models drawn from the posterior with seed 0" in text
    assert "every row in the confidence set" in text
    section.scroll_into_view_if_needed()
    keep(page, "bands")
    assert accessible(page) == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_what_a_formula_does_not_have_is_not_drawn(page: Page, served: str) -> None:
    page.goto(f"{served}/agent?name=ada")
    unfold(page)
    plain = page.locator("#formula-plain .bands tbody tr")
    expect(plain).to_have_count(1, timeout=SOON)
    assert plain.locator("td").all_inner_texts()[3] == "none"
    assert plain.locator("svg .credible").is_visible()
    assert not plain.locator("svg .guaranteed").is_visible()
    several = page.locator("#formula-several .bands")
    assert "rests on at least 1 visit of each row" in several.inner_text()
    assert not several.locator("table").is_visible()
    assert not page.locator("#formula-unbanded .bands").is_visible()


@slow
@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_overview_names_the_widest_band(page: Page, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    cells = page.locator("#agents tr [data-label=value]")
    expect(cells).to_have_count(4, timeout=SOON)
    (fall, plain, several, unbanded) = (cell.locator(".band").inner_text() for cell in cells.all())
    expect(cells.first.locator(".counted")).to_have_text(" from 1 step ago")  # the value to which the band belongs
    low, high = shown(scene)["bands"]["value"]["guaranteed"]
    assert fall == f"nominal: guaranteed {low:.4f} to {high:.4f}"
    assert plain.startswith("credible 0.")
    assert (several, unbanded) == ("", "")
    keep(page, "bands-overview")
    assert accessible(page) == []
