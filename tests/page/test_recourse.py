"""The agent's page says whether a missed goal could have been met, and by which decision; nothing of any other goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from monitor.model import MDP
from tests.page.conftest import Scene, unfold
from tests.page.test_page import SOON, accessible
from tests.sidecar.project import write_project

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROAD, SLIDE, DITCH = range(3)
RUSH, CRAWL = range(2)
CONFIG = """\
model: model.npz
policies: {nominal: rash.yaml, careful: careful.yaml}
formulas:
  - {name: slid, formula: 'regret(careful@2, P>=0.5 [ G<=3 !"bad" ])', recourse: always, causal_model: any}
  - {name: twice, formula: 'regret(careful@2, P>=0.9 [ G<=3 !"bad" ])', recourse: always}
  - {name: fated, formula: 'regret(careful@0, P>=0.5 [ G<=3 !"bad" ])', recourse: always}
  - {name: nested, formula: 'regret(careful@0, P>=1 [ F<=1 P>=0.9 [ F<=1 "home" ] ])', recourse: always}
  - {name: silent, formula: 'regret(careful@2, P>=0.5 [ G<=3 !"bad" ])', recourse: 'off'}
"""


def slope() -> MDP:
    """Who rushes on the road slides, and whoever slides ends in the ditch."""
    return MDP.from_transitions(
        states=3,
        actions=2,
        action_names=["rush", "crawl"],
        transitions=[
            *[(ROAD, RUSH, SLIDE, 0.5), (ROAD, RUSH, ROAD, 0.5), (ROAD, CRAWL, ROAD, 1.0)],
            *[(SLIDE, action, DITCH, 1.0) for action in (RUSH, CRAWL)],
            *[(DITCH, action, DITCH, 1.0) for action in (RUSH, CRAWL)],
        ],
        labels={"bad": [DITCH], "home": []},
    )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """One agent that rushed at step 1, slid, and lies in the ditch."""
    scene = Scene(tmp_path, write_project(tmp_path / "project", slope(), CONFIG))
    for state, action in ((ROAD, CRAWL), (ROAD, RUSH), (SLIDE, CRAWL), (DITCH, CRAWL)):
        scene.step("ada", state, action=action)
    return scene


def rows(page: Page, formula: str) -> list[list[str]]:
    lines = page.locator(f"#formula-{formula} .recourse tbody tr").all()
    return [line.locator("td").all_inner_texts() for line in lines]


def test_the_page_says_what_could_have_been_done(page: Page, served: str, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    page.goto(f"{served}/agent?name=ada")
    unfold(page)
    section = page.locator("#formula-slid .recourse")
    expect(section).to_be_visible(timeout=SOON)
    agent = scene.board.agent("ada")
    assert agent is not None
    slid, twice, fated, nested, silent = agent["formulas"]
    found = slid["recourse"]
    text = section.inner_text()
    assert "Yes: the optimal policy, which knows nothing in advance, would have met the goal." in text
    assert (
        "One decision: crawl instead of rush at step 1, with no other decision changed, would have given 0.5000."
        in text
    )
    assert rows(page, "slid") == [
        ["as they were", "0.0000", "missed"],
        ["1 decision changed, in hindsight", "0.5000", "met"],
        ["optimal, without hindsight", f"{found['optimal']:.4f}", "met"],
        ["best, in hindsight", f"{found['best']:.4f}", "met"],
    ]
    several = page.locator("#formula-twice .recourse").inner_text()
    assert "2 decisions would have given 1.0000; the first: crawl instead of rush at step 1." in several
    assert twice["recourse"]["changes"]["count"] == 2
    fate = page.locator("#formula-fated .recourse")
    assert "No: nobody could have met the goal from the formula's offset on." in fate.inner_text()
    assert "crawl" not in fate.inner_text()
    assert rows(page, "fated") == [["as they were", "0.0000", "missed"], ["optimal", "0.0000", "missed"]]
    assert "hindsight" not in fate.inner_text()
    assert fated["recourse"]["avoidable"] == "no"
    unknown = page.locator("#formula-nested .recourse")
    assert "Not known." in unknown.inner_text()
    assert f"{nested['recourse']['reason']}." in unknown.inner_text()
    assert not unknown.locator("table").is_visible()
    assert not page.locator("#formula-silent .recourse").is_visible()
    assert "recourse" not in silent
    section.scroll_into_view_if_needed()
    keep(page, "recourse")
    assert accessible(page) == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_actions_have_the_words_of_the_configuration(page: Page, served: str, scene: Scene) -> None:
    agent = scene.sources().life("ada", 10)
    assert agent is not None
    assert "crawl instead of rush" in {formula.get("recourse", {}).get("instead") for formula in agent["formulas"]}
    folder = scene.objects.parent / "worded"
    folder.mkdir()
    worded = Scene(folder, write_project(folder / "project", slope(), CONFIG + "actions: {crawl: slow down}\n"))
    for state, action in ((ROAD, CRAWL), (ROAD, RUSH), (SLIDE, CRAWL), (DITCH, CRAWL)):
        worded.step("ada", state, action=action)
    told = worded.sources().life("ada", 10)
    page.route("**/api/**", lambda route: route.fulfill(json=told))
    page.goto(f"{served}/agent?name=ada")
    unfold(page)
    expect(page.locator("#formula-slid .recourse")).to_contain_text(
        "One decision: 'slow down' instead of rush at step 1, ", timeout=SOON
    )


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_it_disappears_once_the_goal_is_met(page: Page, served: str, scene: Scene) -> None:
    scene.step("eve", ROAD, action=RUSH)
    page.goto(f"{served}/agent?name=eve")
    unfold(page)
    section = page.locator("#formula-fated .recourse")
    expect(section).to_be_visible(timeout=SOON)
    scene.step("eve", ROAD, action=CRAWL)
    expect(section).not_to_be_visible(timeout=SOON)
