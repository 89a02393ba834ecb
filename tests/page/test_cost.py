"""What the pages cost a browser: bytes to load, and work to show what happens a hundred times a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")

from tests.page.conftest import Scene
from tests.page.gallery import PAGES, STATES, Answers, show
from tests.page.test_numbers import Walk, answer, opened, still

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response, Route

__all__ = ["still"]
MOST = 150_000
"""Bytes that a page may weigh, not compressed, its first answer included."""


@pytest.mark.parametrize("path", ["", "agent?name=robot-danger", "alarms"])
def test_a_page_weighs_little(blank: Page, served: str, path: str) -> None:
    loaded: list[Response] = []
    blank.on("response", lambda response: loaded.append(response))  # noqa: PLW0108 - it cannot be marked as a handler
    with blank.expect_response("**/api/**"):
        blank.goto(f"{served}/{path}")
    blank.wait_for_load_state("load")
    first = {response.url: response for response in reversed(loaded)}
    names = {url.split("?")[0].rsplit("/", 1)[-1] for url in first}
    assert {"style.css", "common.js"} <= names, "it counts what is loaded"
    assert sum(len(response.body()) for response in first.values()) < MOST


def test_a_hundred_steps_a_second_are_shown_once_a_second(still: Page, calmly_served: str, calm: Scene) -> None:
    walk = Walk(calm, "ada")
    walk.step()
    opened(still, calmly_served)
    asked = []
    still.on("request", lambda request: asked.append(request.url))
    for n in range(1, 4):
        for _ in range(100):
            walk.step()
        told = answer(still)
        assert len(asked) == n
        [ada] = [agent for agent in told["agents"] if agent["name"] == "ada"]
        assert ada["formulas"][0]["seq"] == 100 * n


@pytest.mark.parametrize("state", ["many", *PAGES])
def test_an_answer_that_is_the_same_changes_nothing(blank: Page, calmly_served: str, calm: Scene, state: str) -> None:
    show(blank, calmly_served, Answers(calm), state)
    blank.evaluate("""() => {
      window.changed = [];
      const note = (records) => window.changed.push(...records.map((each) => each.target.nodeName));
      const all = { subtree: true, childList: true, characterData: true };
      new MutationObserver(note).observe(document.getElementById("main"), all);
    }""")
    for _ in range(3):  # the page has shown an answer before it asks again
        with blank.expect_response("**/api/**"):
            pass
    assert blank.evaluate("window.changed") == []
    assert blank.evaluate("document.getAnimations().length") == 0, "each frame of one costs more than an update"


@pytest.mark.parametrize("state", ["one", "agent", "agent-of-all"])
def test_time_that_passes_makes_no_element(blank: Page, calmly_served: str, calm: Scene, state: str) -> None:
    answers = Answers(calm)
    show(blank, calmly_served, answers, state)
    told = PAGES[state][1](answers) if state in PAGES else STATES[state](answers)

    def later(route: Route) -> None:
        told["now"] += 1.0
        route.fulfill(json=told)

    blank.unroute("**/api/**")
    blank.route("**/api/**", later)
    blank.evaluate("""() => {
      window.changed = [];
      const note = (records) => records.flatMap((each) => [...each.addedNodes, ...each.removedNodes])
        .filter((node) => node.nodeType === Node.ELEMENT_NODE).forEach((node) => window.changed.push(node.nodeName));
      new MutationObserver(note).observe(document.getElementById("main"), { subtree: true, childList: true });
    }""")
    before = blank.locator("svg.curve .grid").first.get_attribute("x1")
    for _ in range(3):
        with blank.expect_response("**/api/**"):
            pass
    assert blank.evaluate("window.changed") == []
    assert blank.locator("svg.curve .grid").first.get_attribute("x1") != before or state == "one", "time has passed"
