"""The reliability diagram on an agent's page: what it says of many forecasts, of few, and of none that is followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from monitor.sidecar.effects import Effects
from monitor.types import Calibrated, Calibration, Forecast
from tests.page.conftest import Scene, unfold
from tests.page.test_page import SOON, accessible
from tests.tiers import slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

BINS = ((3, 0.2, 0), (6, 0.9, 1), (9, 2.3, 3), (8, 2.8, 3), (0, 0.0, 0), (14, 7.7, 8), (21, 13.7, 14), (40, 30.2, 29))
MANY = Calibration((*BINS, (70, 59.6, 58), (120, 114.0, 99)), 30.0, 28.1, 7)


def told(scene: Scene, agent: str, calibration: Calibration) -> None:
    """Let it be known how an agent's forecasts turned out."""
    now = scene.now
    scene.board.take(Effects(notices=(Calibrated("regret_fallback", calibration, agent),)), now)


def test_many_forecasts_make_a_diagram(page: Page, scene: Scene, served: str, keep: Any) -> None:  # noqa: ANN401 - a function
    told(scene, "robot-danger", MANY)
    page.goto(f"{served}/agent?name=robot-danger")
    unfold(page)
    section = page.locator(".reliability")
    expect(section.locator(".told")).to_have_text(
        "Of 120 forecasts of about 0.95, the fraction 0.82 came true. "
        "In 1 of 9 groups the forecasts are outside the 95 % interval.",
        timeout=SOON,
    )
    assert section.locator("svg circle").count() == 8
    assert section.locator("svg rect.off").count() == 1
    assert section.locator("svg .ideal").count() == 1
    assert "forecast 0.95: of 120, the fraction 0.82 came true" in (
        section.locator("svg").get_attribute("aria-label") or ""
    )
    rows = section.locator("tbody tr")
    assert rows.count() == 9
    assert rows.last.locator("td").all_inner_texts() == ["0.95", "0.82", "0.75 to 0.89", "120", "NO"]
    score = section.locator(".score").inner_text()
    assert "Brier score 0.1031" in score
    assert "291 non-overlapping forecasts" in score
    assert "7 more were dropped" in score
    keep(page, "reliability")
    section.scroll_into_view_if_needed()
    assert accessible(page) == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_diagram_follows_what_comes_due(page: Page, scene: Scene, served: str) -> None:
    page.goto(f"{served}/agent?name=robot-0")
    unfold(page)
    words = page.locator(".reliability .told")
    expect(words).to_have_text("Too few forecasts have an outcome yet: 0 of 10.", timeout=SOON)
    assert not page.locator(".reliability svg").is_visible()
    told(scene, "robot-0", Calibration((*[(0, 0.0, 0)] * 9, (9, 9 * 0.998, 9)), 0.1, 0.1))
    now = scene.now
    scene.board.take(Effects(notices=(Forecast("robot-0", "regret_fallback", 0.998, came_true=None),)), now)
    expect(words).to_contain_text("9 of 10. 1 more was dropped", timeout=SOON)
    scene.board.take(Effects(notices=(Forecast("robot-0", "regret_fallback", 0.998, came_true=True),)), now)
    expect(words).to_have_text(
        "Of 10 forecasts of about 0.9980, the fraction 1.00 came true. Forecasts and outcomes agree within chance.",
        timeout=SOON,
    )
    assert page.locator(".reliability svg").is_visible()


@slow
@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_on_a_phone_the_diagram_is_not_cut_off(page: Page, scene: Scene, served: str, keep: Any) -> None:  # noqa: ANN401 - a function
    told(scene, "robot-danger", MANY)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{served}/agent?name=robot-danger")
    unfold(page)
    expect(page.locator(".reliability svg")).to_be_visible(timeout=SOON)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    keep(page, "reliability-narrow")
