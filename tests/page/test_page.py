"""The status page in a real browser: what a person sees, with eyes, keyboard or screen reader."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from monitor.sidecar.events import Connected
from tests.page.conftest import Scene
from tests.servers import PATIENCE
from tests.tiers import slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOON = 1000 * PATIENCE  # milliseconds


def accessible(page: Page) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA, contrast included."""
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - only where there is a browser

    rules = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}
    found = Axe().run(page, options=rules).response
    assert any(rule["id"] == "color-contrast" for rule in found["passes"])
    return [f"{rule['id']}: {json.dumps([node['html'] for node in rule['nodes']])}" for rule in found["violations"]]


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_firing_alarms_come_first_and_blindness_cannot_be_missed(page: Page, keep: Any) -> None:  # noqa: ANN401 - a function
    headings = page.locator("h2:visible").all_inner_texts()
    assert headings[:4] == ["Firing", "Blind", "Agents", "Alarms of the last day"]
    strip = [" ".join(cell.split()) for cell in page.locator("#strip .label").all_inner_texts()]
    assert strip == ["1 firing", "0 pending", "1 blind", "0 unknown", "10 fine", "Broker", "Model", "Lag"]
    named = page.locator("#agents tr[data-state=blind] a.page").first.text_content()
    assert page.locator("#blind-none").text_content() == named
    assert page.locator("#pending-none").text_content() == "None known."
    outline = (
        "shape => ['clipPath', 'borderStyle', 'borderRadius'].map((each) => getComputedStyle(shape)[each]).join(' ')"
    )
    shapes = [shape.evaluate(outline) for shape in page.locator("#strip .shape").all()]
    assert len(set(shapes[:5])) == 5, "states are told apart by more than colour"
    alarm = page.locator("#firing li")
    assert alarm.count() == 1
    text = alarm.inner_text()
    assert "FIRING · critical · regret_fallback · robot-danger" in text
    assert "required. " in text
    assert "fallback" in text
    blind = page.locator("#agents tr", has_text="robot-blind")
    assert "blind\nbefore: no alarm" in blind.inner_text()
    says = blind.locator("td[data-label='says']").inner_text()
    assert re.match(r"blind since 20\d\d-\d\d-\d\d [\d:]{8} [^;]+; .*seq", says)
    assert "fit the model" not in page.locator("#doubt-model").inner_text(), "it is not tested"
    names = page.locator("#agents tr [data-label=agent]").all_inner_texts()
    assert names[:3] == ["robot-danger", "robot-blind", "robot-0"]
    assert page.title() == "(1) Counterfactual monitor"
    keep(page, "overview")
    assert accessible(page) == []


def test_an_alarm_is_explained_one_click_away(page: Page, keep: Any) -> None:  # noqa: ANN401 - a function
    page.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    picture = page.locator("#why-picture")
    picture.wait_for(state="visible")
    drawn = picture.locator("svg")
    assert "Value at each step:" in (drawn.locator("desc").text_content() or "")
    assert drawn.evaluate("drawn => drawn.getBoundingClientRect().width") > 400
    newest = drawn.locator(".step").nth(11)
    numbers = newest.locator(".numbers")
    assert not numbers.is_visible()
    newest.focus()
    assert numbers.is_visible()
    assert "instead of" in (newest.get_attribute("aria-label") or "")
    page.keyboard.press("Shift+Tab")
    assert not numbers.is_visible()
    drawn.locator(".step > rect").first.hover()
    assert drawn.locator(".numbers").first.is_visible()
    size = "each => getComputedStyle(each).fontFamily"
    assert "system-ui" in drawn.locator("text").first.evaluate(size), "its style is in force"
    keep(page, "why", whole=False)
    assert accessible(page) == []
    with page.expect_download() as download:
        page.locator("#why-links a").click()
    assert download.value.suggested_filename.endswith(".zip")
    page.keyboard.press("Escape")
    assert not page.locator("#why").is_visible()


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_it_follows_what_happens(page: Page, scene: Scene) -> None:
    announced = page.locator("#announce")
    assert announced.text_content() == ""
    for state in (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30):
        scene.step("robot-new", state)
    expect(page.locator("#firing li")).to_have_count(2, timeout=SOON)
    assert announced.text_content() == "Alarm: regret_fallback fires for robot-new, critical."
    now = scene.now
    scene.feed(Connected(now, up=False))
    scene.problem = "not connected to the broker"
    expect(page.locator("#state")).to_have_text("not connected to the broker", timeout=SOON)
    assert page.locator("#agents tr[data-state='blind']").count() >= 11
    assert page.locator("#firing li").first.locator(".blindness").inner_text() == "blind: disconnected"
    assert accessible(page) == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_what_is_said_of_an_alarm_follows_its_verdicts_also_while_it_is_explained(page: Page, scene: Scene) -> None:
    page.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    card, told = page.locator("#firing .summary"), page.locator("#why-summary")
    fired = told.inner_text()
    assert card.inner_text() == fired
    [alarm] = scene.board.alarms()
    moment = page.locator("#why-moment")
    assert moment.inner_text().startswith(f"When it fired (not now): step {alarm['fired']['seq']}, ")
    scene.step("robot-danger", 38)
    expect(told).not_to_have_text(fired, timeout=SOON)
    [newest] = scene.board.alarms()
    assert newest["seq"] == alarm["seq"] + 1
    assert newest["revision"] == alarm["revision"], "news comes once a second, the page at once"
    finding = newest["summary"].removesuffix(" These numbers hold in every causal model.")
    expect(told).to_have_text(finding, timeout=SOON)
    expect(card).to_have_text(finding, timeout=SOON)
    row = page.locator("#agents tr").first
    [later] = [at for at in newest["profile"] if at["offset"] == 0]
    values = f"{later['nominal']:.4f} vs {later['alternative']:.4f} from now"
    expect(row.locator("[data-label=value]")).to_have_text(values, timeout=SOON)
    asked = f"{newest['value']:.4f} vs {newest['alternative']['value']:.4f}"
    assert row.locator("[data-label='looking back']").inner_text() == f"from 5 steps ago {asked}"
    assert row.locator("[data-label=required]").inner_text() == ">= 0.8"


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_keyboard_reaches_everything_and_an_update_does_not_take_its_place_away(page: Page, scene: Scene) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the alarms"
    page.keyboard.press("Enter")
    for focused in ("Runbook", "Why?"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == focused
    page.evaluate("window.was = document.activeElement")
    scene.step("robot-danger", 31)
    expect(page.locator("#agents tr [data-label=step]").first).to_have_text("12", timeout=SOON)
    assert page.evaluate("document.activeElement === window.was")
    page.keyboard.press("Enter")
    assert page.locator("#why").is_visible()
    assert page.evaluate("document.getElementById('why').contains(document.activeElement)")


def test_a_time_is_written_alike_at_every_hour(browser: Browser, served: str) -> None:
    hours = [1_774_000_000 + 3601 * hour for hour in range(240)]
    for zone, offset, name in (
        ("UTC", 0.0, "UTC"),
        ("Asia/Kolkata", 5.5, "GMT+5:30"),
        ("America/Phoenix", -7.0, "GMT\N{MINUS SIGN}7"),
    ):
        context = browser.new_context(timezone_id=zone)
        page = context.new_page()
        page.goto(served)
        shown = page.evaluate("hours => import('/common.js').then(({ moment }) => hours.map(moment))", hours)
        there = timezone(timedelta(hours=offset))
        assert shown == [f"{datetime.fromtimestamp(hour, there):%Y-%m-%d %H:%M:%S} {name}" for hour in hours]
        context.close()


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_one_agent_of_many_is_found_by_name(page: Page) -> None:
    page.get_by_label("Find an agent").fill("robot-7")
    expect(page.locator("#agents tr")).to_have_count(1, timeout=SOON)
    assert page.locator("#agents tr td").first.inner_text() == "robot-7"


@slow
@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_on_a_narrow_screen_nothing_is_cut_off(page: Page, keep: Any) -> None:  # noqa: ANN401 - a function
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    keep(page, "narrow")
    assert accessible(page) == []
