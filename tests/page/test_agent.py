"""The page of an agent: one axis of time and one scale for all of its formulas, read by pointer, keyboard or ear."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from tests.page.conftest import Scene
from tests.page.gallery import ORDER, Answers, show
from tests.page.test_page import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TOP, BOTTOM = 4.0, 96.0
"""Where the ends of the scale are drawn, of 100."""


@pytest.fixture
def answers(calm: Scene) -> Answers:
    return Answers(calm)


def opened(page: Page, url: str, told: dict[str, Any]) -> None:
    page.route("**/api/**", lambda route: route.fulfill(json=told))
    page.goto(f"{url}/agent?name=robot-1")
    page.wait_for_selector("body[data-live=yes]")


def levels(chart: Locator) -> list[float]:
    return [float(each) for each in chart.locator(".levels span").all_inner_texts()]


def key(chart: Locator) -> list[str]:
    return [" ".join(each.split()) for each in chart.locator(".legend li:visible").all_inner_texts()]


def test_formulas_that_need_somebody_are_first(blank: Page, calmly_served: str, answers: Answers) -> None:
    show(blank, calmly_served, answers, "agent-of-all")
    states = [each.get_attribute("data-state") for each in blank.locator(".formula").all()]
    assert states == list(ORDER)
    assert "firing" in blank.locator(".formula h2").first.inner_text()
    assert blank.locator(".formula .quiet").first.inner_text().startswith("critical, since 20")
    assert blank.locator(".formula details[open]").count() == 0
    assert blank.locator("#span").input_value() == "300"


def test_other_agents_that_need_somebody_are_named(blank: Page, calmly_served: str, answers: Answers) -> None:
    life = answers.agent_of("fine")
    life["others"] = {"firing": ["robot-2", "robot-3", "robot-4"], "blind": ["robot-5"]}
    opened(blank, calmly_served, life)
    others = blank.locator("#others > span")
    assert [one.inner_text().strip() for one in others.all()] == [
        "firing: robot-2, robot-3 and 1 more",
        "blind: robot-5",
    ]
    assert [one.get_attribute("class") for one in others.all()] == ["word-firing", "word-blind"]
    life["others"] = {"firing": [], "blind": []}
    opened(blank, calmly_served, life)
    assert blank.locator("#others").inner_text() == ""


def test_all_charts_have_one_axis_of_time_and_one_scale(blank: Page, calmly_served: str, answers: Answers) -> None:
    life = answers.agent_of("firing", "fine")
    one, two = life["formulas"]
    now = life["now"]
    one["threshold"] = {"comparison": ">=", "bound": 0.5}
    times = [now - 290, now - 100, now - 50, now - 10]
    one["curve"] = {"time": times, "value": [0.9, 0.5, None, 0.3], "alternative": [0.9, 0.9, None, 0.9], "ended": []}
    two["curve"] = {"time": times, "value": [0.6, 0.6, 0.6, 0.6], "alternative": [0.7, 0.7, 0.7, 0.7], "ended": []}
    opened(blank, calmly_served, life)
    charts = blank.locator(".formula")
    drawn = charts.nth(0).locator("path.value")
    [later] = [at for at in one["profile"] if at["offset"] == 0]
    back = charts.nth(0).locator(".chart").locator("xpath=../p")
    expect(back).to_have_text(
        "The curves are judged from 5 steps ago, as the formula asks; "
        f"from now on it is {later['nominal']:.4f} vs {later['alternative']:.4f}."
    )
    expect(drawn).to_have_attribute("d", re.compile("M.+M"), timeout=SOON)
    for n in (0, 1):
        assert levels(charts.nth(n)) == [0.2, 0.4, 0.6, 0.8, 1.0]
    middle = (TOP + BOTTOM) / 2
    assert drawn.get_attribute("d") == "M10.00 15.5L200.00 61.5M290.00 84.5h.01"
    assert charts.nth(0).locator("line.required").get_attribute("y1") == "61.5"
    assert charts.nth(1).locator("path.value").get_attribute("d") == (
        f"M10.00 {middle}L200.00 {middle}L250.00 {middle}L290.00 {middle}"
    )
    [hole] = charts.nth(0).locator("rect[fill='url(#hatch)']").all()
    assert [float((hole.get_attribute(name) or "").rstrip("%")) for name in ("x", "width")] == pytest.approx(
        [100 * 250 / 300, 100 * 40 / 300], abs=0.01
    )
    ticks = [chart.locator(".times span").all_inner_texts() for chart in charts.all()]
    assert ticks[0] == ticks[1]
    assert len(ticks[0]) == 5, "a minute apart"
    two["curve"]["value"] = [35.0, 36.0, 37.0, 38.0]
    two["curve"]["alternative"] = [None] * 4
    two["threshold"], two["probability"] = None, False
    expect(charts.nth(1).locator(".levels span").first).to_have_text(re.compile(r"\d\d"), timeout=SOON)
    assert levels(charts.nth(0)) == [0.2, 0.4, 0.6, 0.8, 1.0], "what is no probability has a scale of its own"
    others = levels(charts.nth(1))
    assert others[0] <= 35
    assert others[-1] >= 38
    two["curve"]["value"] = [0.01, 0.02, 0.02, 0.01]
    expect(charts.nth(1).locator(".levels span").first).to_have_text(re.compile("^0"), timeout=SOON)
    assert levels(charts.nth(1))[-1] < 0.1, "a small reward is no probability"


def test_a_time_is_read_in_all_charts_by_pointer_and_by_keyboard(
    blank: Page, calmly_served: str, answers: Answers
) -> None:
    life = answers.agent_of("firing", "fine")
    one, two = life["formulas"]
    now = life["now"]
    for formula, values in ((one, [0.9, 0.5, None]), (two, [0.8, 0.7, 0.6])):
        formula["curve"] = {
            "time": [now - 250, now - 150, now - 50],
            "value": values,
            "alternative": [1.0, 1.0, None],
            "ended": [],
        }
    opened(blank, calmly_served, life)
    first, second = blank.locator(".formula").all()
    assert key(first)[:2] == ["nominal no value", "fallback no value"]
    assert key(second)[0] == "nominal 0.6000"
    plot = first.locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] / 2, "y": 40})
    assert (key(first)[0], key(second)[0]) == ("nominal 0.5000", "nominal 0.7000")
    assert second.locator(".cursor").is_visible()
    plot.hover(position={"x": box["width"] / 10, "y": 40})
    assert key(first)[:2] == ["nominal no value", "fallback no value"], "before the first point"
    assert key(first)[-1] != key(second)[-1] or key(second)[0] == "nominal no value"
    blank.mouse.move(1, 1)
    assert key(second)[0] == "nominal 0.6000"
    assert not second.locator(".cursor").is_visible()
    slider = first.get_by_role("slider")
    slider.focus()
    for pressed, shown in (
        ("ArrowLeft", "0.5000"),
        ("ArrowLeft", "0.9000"),
        ("ArrowLeft", "0.9000"),
        ("End", "no value"),
    ):
        blank.keyboard.press(pressed)
        assert key(first)[0] == f"nominal {shown}"
    blank.keyboard.press("Home")
    assert (slider.get_attribute("aria-valuetext") or "").startswith(
        "nominal 0.9000; fallback 1.0000; required >= 0.8; at 2"
    )
    assert key(second)[0] == "nominal 0.8000"
    for _ in range(2):  # the page has shown an answer before it asks again
        with blank.expect_response("**/api/**"):
            pass
    expect(first.locator(".cursor")).to_be_visible(timeout=SOON)
    assert key(first)[0] == "nominal 0.9000", "an update does not take it away"
    blank.keyboard.press("Escape")
    assert key(second)[0] == "nominal 0.6000"


def test_the_end_of_an_episode_is_marked_and_read(blank: Page, calmly_served: str, answers: Answers) -> None:
    life = answers.agent_of("fine")
    [formula], now = life["formulas"], life["now"]
    formula["curve"] = {
        "time": [now - 250, now - 200, now - 200, now - 150, now - 100, now - 20],
        "value": [0.9, 0.0, None, 0.8, None, 0.7],
        "alternative": [1.0, 1.0, None, 1.0, None, 1.0],
        "ended": [now - 200, now - 50],
    }
    opened(blank, calmly_served, life)
    chart = blank.locator(".formula")
    assert chart.locator("path.ended").get_attribute("d") == "M100.00 0v100M250.00 0v100"
    drawn = chart.locator("path.value").get_attribute("d") or ""
    xs = re.findall(r"([ML])([\d.]+) [\d.]+(h.01)?", drawn)
    assert xs == [("M", "50.00", "h.01"), ("M", "150.00", "h.01"), ("M", "280.00", "h.01")], (
        "no line to an outcome, nor from one episode to the next"
    )
    [square] = chart.locator("rect.ending").all()
    places = [float((square.get_attribute(name) or "").rstrip("%")) for name in ("x", "y")]
    assert places == pytest.approx([100 / 3, BOTTOM], abs=0.01), "at its value, at the end; one that was blind has none"
    assert levels(chart)[0] > 0, "an outcome does not stretch the axis"
    assert square.evaluate("each => getComputedStyle(each).fill === getComputedStyle(each).stroke"), "missed: filled"
    assert "last values of episodes: □ 0 goal met, ■ 1 goal missed" in key(chart), "the other one was blind at its end"
    legend = blank.locator(".shown .legend li:has(.ended)").all_inner_texts()
    assert [each.strip() for each in legend] == ["episode ended, goal met", "goal missed"]
    gaps = chart.locator(".gaps span")
    assert gaps.all_text_contents() == ["no episode", "blind"]
    assert [each.is_visible() for each in gaps.all()] == [True, True]
    slider = chart.get_by_role("slider")
    assert "episodes ended: 2" in (slider.get_attribute("aria-label") or "")
    slider.focus()
    said = []
    for pressed in ("Home", *["ArrowRight"] * 5):
        blank.keyboard.press(pressed)
        said.append(
            re.sub(
                r" 20\S+ \S+ \S+?(:|$)", r" T\1", "; ".join([key(chart)[0].removeprefix("nominal "), key(chart)[-1]])
            )
        )
    assert said == [
        "0.9000; at T",
        "no value; at T: episode ended; value before it 0.0000",
        "0.8000; at T",
        "no value; at T",
        "no value; at T: episode ended",
        "0.7000; at T",
    ]
    assert slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax") == "5"
    box = chart.locator(".plot").bounding_box()
    assert box is not None
    chart.locator(".plot").hover(position={"x": box["width"] * 0.9, "y": 40})
    assert key(chart)[-1].endswith(": episode ended"), "by the pointer too"
    chart.locator(".plot").hover(position={"x": box["width"] * 0.75, "y": 40})
    assert not key(chart)[-1].endswith("episode ended"), "blind, and the episode has not ended yet"


def test_the_time_shown_can_be_chosen_and_begins_with_what_shows_since_when(
    blank: Page, calmly_served: str, answers: Answers
) -> None:
    life = answers.agent_of("firing")
    [formula] = life["formulas"]
    now = life["now"]
    life["alarms"][0] |= {"since_unix": now - 3000, "began_unix": now - 3000}
    times = [now - 5000, now - 3000, now - 10]
    formula["curve"] = {"time": times, "value": [0.9, 0.5, 0.4], "alternative": [1.0, 1.0, 1.0], "ended": []}
    opened(blank, calmly_served, life)
    chosen, value = blank.get_by_label("Time shown"), blank.locator("#formulas path.value")
    assert chosen.input_value() == "3600"
    assert (value.get_attribute("d") or "").startswith("M-116.67 ")
    chosen.select_option("all")
    expect(value).to_have_attribute("d", re.compile("^M0.00 "), timeout=SOON)
    chosen.select_option("last five minutes")
    expect(value).to_have_attribute("d", re.compile("L290.00 [0-9.]+$"), timeout=SOON)
    assert blank.locator("#formulas rect.fired").get_attribute("width") == "300"


def test_the_time_shown_changes_also_while_the_monitor_does_not_answer(
    blank: Page, calmly_served: str, answers: Answers
) -> None:
    life = answers.agent_of("fine")
    now = life["now"]
    life["formulas"][0]["curve"] = {
        "time": [now - 2000, now - 100],
        "value": [0.9, 0.8],
        "alternative": [1.0, 1.0],
        "ended": [],
    }
    opened(blank, calmly_served, life)
    blank.unroute("**/api/**")
    blank.route("**/api/**", lambda route: route.abort())
    expect(blank.locator("body")).to_have_attribute("data-live", "no", timeout=SOON)
    value = blank.locator("#formulas path.value")
    assert (value.get_attribute("d") or "").startswith("M-1700.00 ")
    blank.get_by_label("Time shown").select_option("all")
    assert (value.get_attribute("d") or "").startswith("M0.00 ")
    assert "No answer from the monitor" in blank.locator("#state").inner_text()


@pytest.mark.parametrize("since", [None, 0, -1.0])
def test_an_alarm_whose_beginning_is_unknown_is_not_said_to_be_old(
    blank: Page, calmly_served: str, answers: Answers, since: float | None
) -> None:
    life = answers.agent_of("firing")
    life["alarms"][0] |= {"since_unix": since, "began_unix": since}
    opened(blank, calmly_served, life)
    assert blank.locator(".formula .quiet").first.inner_text() == "critical, since an unknown time"
    assert blank.locator("#span").input_value() == "300"


def test_a_malformed_anchor_is_no_error(blank: Page, calmly_served: str, answers: Answers) -> None:
    blank.route("**/api/**", lambda route: route.fulfill(json=answers.agent_of("fine")))
    blank.goto(f"{calmly_served}/agent?name=robot-1#%E0%A4%A")
    blank.wait_for_selector("body[data-live=yes]")
    assert blank.locator(".formula").count() == 1
