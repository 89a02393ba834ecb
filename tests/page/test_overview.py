"""The overview in states that a few agents on a board do not reach: many agents, blind ones, the pointer on a row."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from tests.page.conftest import Scene
from tests.page.gallery import PAGES, STATES, Answers, show
from tests.page.test_page import SOON, accessible
from tests.tiers import first

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = "#agents tr [data-label=agent]"


@pytest.fixture
def answers(calm: Scene) -> Answers:
    return Answers(calm)


def answered(page: Page, told: dict[str, Any]) -> None:
    """Let the page be answered `told` from now on, and wait until that is shown: it asks again after that."""
    page.unroute("**/api/**")
    page.route("**/api/**", lambda route: route.fulfill(body=json.dumps(told), content_type="application/json"))
    for _ in range(2):
        with page.expect_response("**/api/**"):
            pass


def top(page: Page, name: str) -> float:
    box = page.locator("#agents tr", has=page.get_by_role("link", name=name, exact=True)).bounding_box()
    assert box is not None
    return box["y"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", first(1, [*STATES, *PAGES]))
def test_axe_finds_nothing(browser: Browser, calmly_served: str, answers: Answers, state: str, scheme: Any) -> None:  # noqa: ANN401 - one of two words
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    show(page, calmly_served, answers, state)
    page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    found = accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    found += accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()
    assert found == []


def test_a_thousand_agents_are_folded_with_a_count(blank: Page, calmly_served: str, answers: Answers) -> None:
    show(blank, calmly_served, answers, "many")
    strip = [" ".join(cell.split()) for cell in blank.locator("#strip .label").all_inner_texts()]
    assert strip[:5] == ["2 firing", "1 pending", "2 blind", "1 unknown", "994 fine"]
    blind = blank.locator("#agents tr[data-state=blind]")
    assert blank.locator("#blind-none").text_content() == ", ".join(
        row.locator("a.page").first.text_content() or "" for row in blind.all()
    )
    rows = blank.locator("#agents tr:visible")
    assert rows.count() == 12
    assert [row.get_attribute("data-state") for row in rows.all()[:7]] == [
        *("firing", "firing", "pending", "blind", "blind", "unknown", "fine")
    ]
    folded = blank.get_by_role("button", name="Show 88 more: 88 fine")
    assert blank.locator("#agents-more").inner_text().startswith("900 more agents")
    folded.click()
    expect(rows).to_have_count(100, timeout=SOON)
    expect(rows.last.locator("path.value")).to_have_attribute("d", re.compile("M.+L"), timeout=SOON)
    with blank.expect_request("**/api/overview?drawn=all&search="):
        pass
    blank.get_by_role("button", name="Show the first 12 only").click()
    expect(rows).to_have_count(12, timeout=SOON)
    assert blank.locator("#lanes li:visible").count() == 8
    assert blank.get_by_role("button", name="Show 2 more agents").is_visible()


def test_an_alarm_beyond_the_fold_is_counted_where_it_is_folded(
    blank: Page, calmly_served: str, answers: Answers
) -> None:
    agents = [answers.agent(f"robot-{n}", "firing") for n in range(15)]
    blank.route("**/api/**", lambda route: route.fulfill(json=answers.overview(*agents)))
    blank.goto(calmly_served)
    expect(blank.locator("#agents-fold")).to_have_text("Show 3 more: 3 firing", timeout=SOON)
    assert blank.locator("#firing > li:visible").count() == 3
    assert blank.locator("#firing-fold").inner_text() == "Show 12 more"


def test_nothing_moves_under_the_pointer(blank: Page, calmly_served: str, answers: Answers) -> None:
    names = [f"robot-{n}" for n in range(9)]
    calm = [answers.agent(name, "fine") for name in names]
    blank.set_viewport_size({"width": 1200, "height": 500})
    blank.route("**/api/**", lambda route: route.fulfill(json=answers.overview(*calm)))
    blank.goto(calmly_served)
    expect(blank.locator(NAMES)).to_have_text(names, timeout=SOON)
    blank.locator("#agents tr", has_text="robot-6").scroll_into_view_if_needed()
    blank.locator("#agents tr", has_text="robot-5").hover()
    before = top(blank, "robot-5")
    rest = [agent for agent in calm if agent["name"] not in {"robot-2", "robot-8"}]
    answered(blank, answers.overview(answers.agent("robot-8", "firing"), *rest))
    assert blank.locator("#firing li").count() == 1, "it is shown at once, above"
    assert blank.locator(NAMES).all_inner_texts() == names
    assert top(blank, "robot-5") == pytest.approx(before, abs=1)
    assert blank.locator("#agents tr").nth(8).get_attribute("data-state") == "firing"
    gone = blank.locator("#agents tr.gone")
    assert gone.locator("td").first.inner_text() == "robot-2"
    assert "no longer in this list" in gone.evaluate("row => getComputedStyle(row, '::after').content")
    blank.mouse.move(5, 5)
    blank.evaluate("scrollTo(0, 0)")
    others = [name for name in names if name not in {"robot-2", "robot-8"}]
    expect(blank.locator(NAMES)).to_have_text(["robot-8", *others], timeout=SOON)


def test_a_trace_is_on_the_common_axes(blank: Page, calmly_served: str, answers: Answers) -> None:
    agent = answers.agent("robot-1", "fine")
    told = answers.overview(agent)
    now = told["now"]
    [formula] = told["agents"][0]["formulas"]
    formula["last_minutes"] = {
        "time": [now - 400, now - 240, now - 180, now - 90],
        "value": [1.0, 0.0, None, 0.5],
        "alternative": [None, None, None, 1.0],
        "ended": [now - 400, now - 180, now - 150],
    }
    outline = {"agent": "robot-1", "formula": formula["name"], "severity": "critical"}
    ended = {"id": "a", "state": "resolved", "began_unix": now - 60, "over_unix": now - 30, **outline}
    old = {"id": "b", "state": "resolved", "began_unix": now - 900, "over_unix": now - 600, **outline}
    told["day"] = [ended, old]
    blank.route("**/api/**", lambda route: route.fulfill(json=told))
    blank.goto(calmly_served)
    trace = blank.locator("#agents .trace")
    expect(trace.locator("path.value")).to_have_attribute("d", "M-100.00 4.0h.01M210.00 80.7h.01", timeout=SOON)
    assert trace.locator("path.instead").get_attribute("d") == "M210.00 4.0h.01"
    assert trace.locator("line.required").get_attribute("y1") == "34.7"
    read = "(all) => all.map((each) => [parseFloat(each.getAttribute('x')), parseFloat(each.getAttribute('width'))])"
    assert trace.locator("rect[fill='url(#hatch)']").evaluate_all(read) == [[40, 30]], "percent of five minutes"
    assert trace.locator("rect.fired").evaluate_all(read) == [[240, 30]]
    assert [trace.get_attribute(f"data-{end}") for end in ("low", "high")] == ["0.4", "1"]
    label = trace.locator("svg.curve").get_attribute("aria-label")
    assert (
        label == "values of the last five minutes: from 0.0000 to 0.5000; required >= 0.8; alarms: 1; episodes ended: 2"
    )
    assert trace.locator("path.ended").get_attribute("d") == "M150.00 0v25", "a hole may begin before its end"
    assert trace.locator("rect.ending").evaluate_all(read) == [[40, 4]], "at the end of the episode, in percent"
    assert trace.locator("rect.ending").get_attribute("y") == "96%", "beyond the axis, at its edge"
    assert trace.locator("rect.ending").get_attribute("class") == "ending missed"
    lane = blank.locator("#lanes rect").evaluate_all(read)
    assert lane == [[1439, 5], [1425, 5]]
    formula["last_minutes"]["value"][1:] = [1.0, None, -3.0]
    formula["probability"] = False
    answered(blank, told)
    assert [trace.get_attribute(f"data-{end}") for end in ("low", "high")] == ["-3", "1"]
    assert trace.locator("path.value").get_attribute("d") == "M-100.00 4.0h.01M210.00 96.0h.01"
    assert trace.locator("rect.ending").get_attribute("class") == "ending", "the goal was met"


def test_agents_without_a_verdict_are_named_with_the_reason(blank: Page, calmly_served: str, answers: Answers) -> None:
    told = answers.overview(answers.agent("robot-1", "unknown"), answers.agent("robot-2", "blind", 1.0))
    blank.route("**/api/**", lambda route: route.fulfill(json=told))
    blank.goto(calmly_served)
    line, firing = blank.locator("#unknown-none"), blank.locator("#firing-none")
    expect(line).to_have_text("robot-1: between episodes, or no verdict yet", timeout=SOON)
    expect(blank.locator("#lag")).to_have_text("0.04 s at most, of the messages that arrive; none from robot-2")
    expect(blank.locator("#fine-none")).to_have_text("none")
    [unknown] = [agent for agent in told["agents"] if agent["name"] == "robot-1"]
    unknown["formulas"][0]["outcome"] = "undecided"
    expect(line).to_have_text("robot-1: undecided", timeout=SOON)
    told["lag"] = None
    expect(blank.locator("#lag")).to_have_text("Unknown: no step arrives from robot-2.", timeout=SOON)
    told["agents"] = []
    expect(line).to_have_text("no verdict, or undecided", timeout=SOON)
    assert firing.inner_text() == "Unknown: robot-2 is blind."
    told["blind"] = []  # not all that are blind are listed
    expect(firing).to_have_text("Unknown: some formulas are blind.", timeout=SOON)


def test_what_is_unknown_is_not_counted_as_nothing(blank: Page, calmly_served: str, answers: Answers) -> None:
    show(blank, calmly_served, answers, "none")
    assert blank.locator("#strip .many").all_inner_texts() == ["?"] * 5
    assert "Unknown: no agent has sent a step yet" in blank.locator("#firing-none").inner_text()
    show(blank, calmly_served, answers, "many")
    assert blank.locator("#alternative").inner_text() == "fallback", "as all formulas have the same"
    assert blank.locator("#fine-none").inner_text() == "robot-1, robot-2, 992 more"
    show(blank, calmly_served, answers, "disconnected")
    expect(blank.locator("#strip .many")).to_have_text(["?", "?", "3", "?", "?"], timeout=SOON)
    assert blank.locator("#broker").inner_text() == "NOT connected to mqtt://localhost:1883"
    assert blank.locator("#lag").inner_text() == "Unknown: not connected to the broker."
    show(blank, calmly_served, answers, "doubted")
    expect(blank.locator("#doubt-model")).to_contain_text(
        "Below: 1 agent in doubt, 1 agent not following its policy.", timeout=SOON
    )
    assert blank.locator("#strip-model").get_attribute("data-on") == "yes"
    says = blank.locator("#agents td[data-label='says']").all_inner_texts()
    assert says == ["NOT ITS POLICY: its actions differ from it", "IN DOUBT: its transitions contradict the model"]
