"""What the pages say while nothing is known: never that all is well. And history, doubt, and a phone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from monitor.sidecar.effects import Effects
from monitor.types import Contradictions, Deviates, Forgotten, Trust, WrongAgent, WrongRow
from tests.alarm.test_summary import GOAL, regretted, tell_all
from tests.page.conftest import Scene
from tests.page.test_page import SOON, accessible
from tests.tiers import first

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = ("", "agent?name=robot-0", "alarms")
CLEAR = (
    "No alarm is firing",
    "No formula is blind",
    "No alarm in the last day",
    "No alarm is pending",
    "has no alarm",
    "No alarm matches",
)


def visible(page: Page) -> str:
    return page.locator("body").inner_text()


def check_unknown(page: Page) -> None:
    """Nothing is said to be well, and that nothing is known cannot be missed."""
    text = visible(page)
    assert not [words for words in CLEAR if words in text]
    assert page.locator(".unknown:visible").count() > 0
    assert "Unknown" in text


# ---- nothing is known ----


@pytest.mark.parametrize("path", first(1, PAGES))
def test_without_script_nothing_is_said_to_be_well(browser: Browser, calmly_served: str, path: str, keep: Any) -> None:  # noqa: ANN401 - a function
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{calmly_served}/{path}")
    check_unknown(page)
    assert "Without JavaScript" in visible(page)
    text = page.frame_locator("iframe").locator("body").inner_text()
    assert "0 firing" in text
    assert "robot-0" in text
    keep(page, f"no-script-{path.partition('?')[0]}")
    context.close()


@pytest.mark.parametrize("path", first(1, PAGES))
def test_with_the_api_blocked_nothing_is_said_to_be_well(blank: Page, calmly_served: str, path: str, keep: Any) -> None:  # noqa: ANN401 - a function
    blank.route("**/api/**", lambda route: route.abort())
    blank.goto(f"{calmly_served}/{path}")
    expect(blank.locator("body")).to_have_attribute("data-live", "no", timeout=SOON)
    check_unknown(blank)
    assert "No answer from the monitor" in blank.locator("#state").inner_text()
    assert blank.title().startswith("(?) ")
    keep(blank, f"blocked-{path.partition('?')[0]}")


def test_with_an_api_that_fails_nothing_is_said_to_be_well(blank: Page, calmly_served: str) -> None:
    blank.route("**/api/**", lambda route: route.fulfill(status=500, body="it broke"))
    blank.goto(calmly_served)
    expect(blank.locator("#state")).to_have_text("No answer from the monitor: it broke.", timeout=SOON)
    check_unknown(blank)


@pytest.mark.parametrize("path", first(1, PAGES))
def test_while_it_connects_nothing_is_said_to_be_well(blank: Page, calmly_served: str, path: str) -> None:
    blank.route("**/api/**", lambda _route: None)  # it hangs
    with blank.expect_request("**/api/**"):
        blank.goto(f"{calmly_served}/{path}")
    check_unknown(blank)
    assert "connecting" in blank.locator("#state").inner_text()


def test_what_is_shown_is_unknown_once_the_monitor_does_not_answer_any_more(
    blank: Page,
    calmly_served: str,
    keep: Any,  # noqa: ANN401 - a function
) -> None:
    blank.goto(calmly_served)
    expect(blank.locator("#firing-none")).to_have_text("No alarm is firing.", timeout=SOON)
    assert "No formula is blind." in visible(blank)
    blank.route("**/api/**", lambda route: route.abort())
    expect(blank.locator("#firing-none")).to_have_text("Unknown: the monitor does not answer.", timeout=SOON)
    check_unknown(blank)
    assert "Data shown are from 20" in blank.locator("#state").inner_text()
    after = "cell => getComputedStyle(cell, '::after').content"
    assert blank.locator("#agents td[data-label='alarm']").first.evaluate(after) == '" (last known)"'
    keep(blank, "stopped")
    blank.unroute("**/api/**")
    expect(blank.locator("#firing-none")).to_have_text("No alarm is firing.", timeout=SOON)


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_ten_seconds(blank: Page, calmly_served: str) -> None:
    blank.clock.install()
    blank.goto(calmly_served)
    expect(blank.locator("#firing-none")).to_have_text("No alarm is firing.", timeout=SOON)
    blank.route("**/api/**", lambda _route: None)
    blank.clock.fast_forward(12_000)
    expect(blank.locator("#firing-none")).to_have_text("Unknown: the monitor does not answer.", timeout=SOON)


def test_a_monitor_that_sees_nothing_does_not_say_that_nothing_fires(
    blank: Page, calm: Scene, calmly_served: str
) -> None:
    calm.problem = "not connected to the broker"
    blank.goto(calmly_served)
    expect(blank.locator("#firing-none")).to_have_text("Unknown: not connected to the broker.", timeout=SOON)
    check_unknown(blank)
    assert blank.title().startswith("(?) ")


# ---- something is known ----


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_an_alarm_that_fires_again_does_not_hide_the_one_before(
    page: Page,
    scene: Scene,
    served: str,
    keep: Any,  # noqa: ANN401 - a function
) -> None:
    one, two = scene.board.found(scene.asked(agent="robot-danger"))
    assert {one["state"], two["state"]} == {"firing", "resolved"}
    expect(page.locator("#recent li")).to_have_count(1, timeout=SOON)
    page.locator("#firing li").first.get_by_role("link", name="the agent's page").click()
    expect(page.locator("#alarms li")).to_have_count(2, timeout=SOON)
    heads = page.locator("#alarms li .head").all_inner_texts()
    assert [head.removeprefix("!!").split()[0] for head in heads] == ["FIRING", "RESOLVED"]
    assert "UTC" in heads[1] or "GMT" in heads[1]
    chart = page.locator("#formulas .chart")
    expect(chart.locator("svg.curve")).to_be_visible(timeout=SOON)
    assert "required >= 0.8; alarms: 2" in (chart.get_attribute("aria-label") or "")
    keep(page, "agent")
    assert accessible(page) == []
    page.goto(f"{served}/alarms?agent=robot-danger&state=over")
    expect(page.locator("#list li")).to_have_count(1, timeout=SOON)
    assert page.get_by_label("Agent").input_value() == "robot-danger"
    page.get_by_label("State").select_option("")
    expect(page.locator("#list li")).to_have_count(2, timeout=SOON)
    keep(page, "alarms")
    assert accessible(page) == []


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_a_blind_agent_is_not_said_to_be_clear(page: Page) -> None:
    row = page.locator("#agents tr", has_text="robot-blind")
    assert row.locator("td[data-label='alarm']").inner_text() == "blind"
    assert row.locator("td[data-label='verdict']").inner_text() == "before: no alarm"
    said = row.locator("td[data-label='says']")
    assert said.get_by_role("link", name="Runbook").get_attribute("href") == "runbooks/CfmonFormulaBlind"
    firing = "robot-danger. There may be more: robot-blind is blind."
    assert page.locator("#firing-none").inner_text() == firing
    card = page.locator("#blind > li")
    assert card.count() == 1
    assert re.fullmatch(
        r"BLIND · gap · 1 agent · blind since 20\d\d-\S+ [\d:]{8} \S+, for \d+ s; before: no alarm",
        card.locator(".head").inner_text(),
    )
    assert re.fullmatch(
        r"robot-blind: steps are missing \(.*seq.*\)\. No reliable verdict now of regret_fallback\.",
        card.locator(".summary").inner_text(),
    )
    assert card.locator(".instructions").inner_text().startswith("How: Look at what the agent controls (")
    assert card.get_by_role("link", name="Runbook").get_attribute("href") == "runbooks/CfmonFormulaBlind"
    assert card.locator(".page").get_attribute("href") == "agent?name=robot-blind"


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_agents_that_are_blind_for_one_reason_share_a_card_and_idle_ones_have_none(page: Page) -> None:
    told = page.evaluate("fetch('/api/overview').then((answer) => answer.json())")
    [gap] = told["blind"]
    many = [{**gap, "agent": f"robot-{n}"} for n in range(7)]
    stale = {**gap, "reason": "stale", "words": "no step has arrived for too long", "detail": ""}
    told["blind"] = [*many, stale, {**gap, "reason": "idle", "complete": True}]
    page.route("**/api/overview*", lambda route: route.fulfill(json=told))
    cards = page.locator("#blind .summary")
    expect(cards).to_have_text(
        [
            re.compile(
                r"robot-0, robot-1, robot-2, robot-3, robot-4 and 2 more: .*"
                r"\. No reliable verdict now of regret_fallback\."
            ),
            "robot-blind: no step has arrived for too long. No reliable verdict now of regret_fallback.",
        ],
        timeout=SOON,
    )


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_why_is_answered_also_where_nothing_fires(page: Page, keep: Any) -> None:  # noqa: ANN401 - a function
    page.get_by_role("link", name="Explain regret_fallback of robot-3").click()
    expect(page.locator(".formula .summary")).to_contain_text("required", timeout=SOON)
    assert page.locator("h1").inner_text() == "robot-3"
    assert page.locator(".profile tbody tr").count() > 0
    assert page.locator(".formula details.more").get_attribute("open") is not None, "who asks why reads the details"
    assert page.locator("#alarms-none").inner_text() == "This agent has no alarm in the list."
    keep(page, "agent-calm")


def test_rows_and_agents_that_contradict_the_model_are_named_with_what_to_do(page: Page, scene: Scene) -> None:
    now = scene.now
    row = WrongRow("hill", "walk", 4.0, "plain", 40, 100, 0.1, 3)
    found = Contradictions((row,), (WrongAgent("robot-4", 5.0),), 12, 1, 64)
    scene.board.take(Effects(notices=(found,)), now)
    wrong = page.locator("#wrong li")
    expect(wrong).to_have_count(3, timeout=SOON)
    expect(wrong.nth(0)).to_contain_text("ROW OF THE MODEL WRONG · state hill, action walk (e-value 1e4.0)")
    words = "Next state plain: in 40 of the last 100 visits, the model's probability is 0.100."
    expect(wrong.nth(0)).to_contain_text(words)
    expect(wrong.nth(0)).to_contain_text("3 of these visits led where the model gives probability 0.")
    expect(wrong.nth(0)).to_contain_text("cfmon model learn --append")
    expect(wrong.nth(1)).to_contain_text("AGENT CONTRADICTS THE MODEL · robot-4 (e-value 1e5.0)")
    expect(wrong.nth(2)).to_contain_text("11 more rows contradict the model")
    assert accessible(page) == []
    scene.board.take(Effects(notices=(Contradictions(rows_tested=64),)), now)
    expect(wrong).to_have_count(0, timeout=SOON)


def test_doubt_says_which_agent(page: Page, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    now = scene.now
    scene.board.take(Effects(notices=(Trust(False, 0.2, 900), Trust(True, 4.5, 120, "robot-4"))), now)  # noqa: FBT003
    expect(page.locator("#doubt li")).to_contain_text("IN DOUBT · robot-4", timeout=SOON)
    told = scene.sources().overview("", 100)
    loud = {"state": 0, "action": 1, "successor": 8, "seen": 30, "of": 40, "expected": 13.333}
    told["doubt"]["agents"][0]["departing"] = [loud]
    page.route("**/api/overview*", lambda route: route.fulfill(json=told))
    words = "state 0, action 1, next state 8: observed 30 times in 40, expected 13.3"
    expect(page.locator("#doubt li .detail")).to_have_text(words, timeout=SOON)
    page.unroute("**/api/overview*")
    assert page.locator("#doubt-model").inner_text() == (
        "All agents' transitions do not contradict the model so far (e-value 1.6 after 900 transitions). "
        "Below: 1 agent in doubt."
    )
    assert accessible(page) == []
    page.locator("#doubt li a").click()
    expect(page.locator("#doubt")).to_contain_text("this agent's transitions contradict the model", timeout=SOON)
    keep(page, "agent-doubted")
    assert accessible(page) == []


def test_an_agent_that_does_not_follow_its_policy_is_named(page: Page, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    now = scene.now
    scene.board.take(Effects(notices=(Deviates("robot-4", 0.37, 100),)), now)
    expect(page.locator("#deviating li", has_text="robot-4")).to_contain_text("on 37 % of its last 100", timeout=SOON)
    assert accessible(page) == []
    page.locator("#deviating li", has_text="robot-4").locator("a").click()
    expect(page.locator("#deviates")).to_contain_text("NOT ITS POLICY: on 37 % of its last 100 steps", timeout=SOON)
    keep(page, "agent-deviates")
    assert accessible(page) == []


def test_evidence_can_be_taken_along_with_all_it_needs(page: Page, scene: Scene) -> None:
    [alarm] = scene.board.found(scene.asked(state="firing"))
    link = page.locator("#firing .bundle")
    assert link.get_attribute("href") == f"evidence/{alarm['evidence']['id']}.zip"
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == f"{alarm['evidence']['id']}.zip"


def test_a_phone_shows_value_and_threshold(page: Page, keep: Any) -> None:  # noqa: ANN401 - a function
    page.set_viewport_size({"width": 360, "height": 740})
    row = page.locator("#agents tr").first
    for label in ("value", "required", "alarm", "last message"):
        box = row.locator(f"td[data-label='{label}']").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert row.locator("td[data-label='required']").inner_text() == ">= 0.8"
    keep(page, "phone")
    assert accessible(page) == []
    row.get_by_role("link", name="Why").click()
    chart = page.locator("#formulas .chart svg.curve")
    expect(chart).to_be_visible(timeout=SOON)
    box = chart.bounding_box()
    assert box is not None
    assert 250 < box["width"] <= 360 - box["x"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    keep(page, "phone-agent")


def test_critical_is_told_from_warning_by_more_than_colour(page: Page, scene: Scene, keep: Any) -> None:  # noqa: ANN401 - a function
    told = scene.sources().overview("", 100)
    [critical] = told["firing"]
    warning = {**critical, "id": "other", "severity": "warning", "agent": "robot-1"}
    page.route("**/api/overview*", lambda route: route.fulfill(json={**told, "firing": [critical, warning]}))
    cards = page.locator("#firing li")
    expect(cards).to_have_count(2, timeout=SOON)
    assert [card.locator(".mark").inner_text() for card in cards.all()] == ["!!", "!"]
    width = "card => parseFloat(getComputedStyle(card).borderLeftWidth)"
    assert cards.nth(0).evaluate(width) > cards.nth(1).evaluate(width)
    keep(page, "severities")
    assert accessible(page) == []


def test_alarms_that_come_and_go_are_counted_in_the_shortest_time_that_has_them_all(page: Page) -> None:
    said = """([ages, more]) => import('/common.js').then(({ repeatsOf }) => {
      const alarms = ages.map(([age, over]) => ({
        began_unix: 1e9 - age, over_unix: over && 1e9 - over,
        state: over === null ? "firing" : over === 7 ? "ended" : "resolved",
      }));
      return repeatsOf(alarms, 1e9, more);
    })"""
    for ages, more, words in (
        ([(10.0, None)], False, ""),
        ([(10.0, 5.0), (90_000.0, 100.0)], False, ""),
        ([(299.0, None), (10.0, None)], False, "Recurring: 2 alarms in the last 5 min."),
        (
            [(301.0, 299.0), (10.0, None)],
            False,
            "Recurring: 2 alarms in the last 6 min. Of those before, 1 resolved; median length 2 s.",
        ),
        (
            [(3601.0, 3600.0), (301.0, 292.0), (10.0, 7.0)],
            False,
            (
                "Recurring: 3 alarms in the last 61 min. "
                "Of those before, 2 resolved, 1 ended with the episode; median length 3 s."
            ),
        ),
        (
            [(3601.0, 1.0), (7200.0, 3601.0)],
            False,
            "Recurring: 2 alarms in the last 2 h. Of those before, 2 resolved; median length 60 min.",
        ),
        ([(299.0, None), (10.0, None)], True, "Recurring: at least 2 alarms in the last 5 min."),
    ):
        assert page.evaluate(said, [ages, more]) == words


def test_how_to_hand_over_is_said_while_an_alarm_fires(page: Page, scene: Scene, served: str) -> None:
    told = [{**alarm, "instructions": "Call 4711."} for alarm in scene.board.found(scene.asked())]
    page.route("**/api/alarms*", lambda route: route.fulfill(json=told))
    page.goto(f"{served}/alarms")
    cards = page.locator("#list > li")
    expect(cards).to_have_count(2, timeout=SOON)
    for card in cards.all():
        firing = card.locator(".head").inner_text().find("FIRING") >= 0
        assert card.locator(".instructions:visible").all_inner_texts() == ["How: Call 4711."] * firing
    page.get_by_role("button", name=re.compile("^Why does")).click()
    assert page.locator("#why .instructions").inner_text() == "How: Call 4711."
    told[:] = [{**alarm, "instructions": None} for alarm in told]
    expect(page.locator(".instructions:visible")).to_have_count(0, timeout=SOON)


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_where_causal_models_disagree_it_is_said_that_the_advice_does_not_depend_on_it(
    page: Page, scene: Scene, served: str
) -> None:
    [alarm] = scene.board.found(scene.asked(state="firing"))
    own = alarm["value"]
    page.route("**/picture/*", lambda route: route.fulfill(status=202, body="being drawn"))
    for change, said in (
        ({"bounds": [own, own]}, True),
        ({"bounds": [own - 0.1, own]}, False),
        ({"bounds": None}, False),
        ({"bounds": [own, own], "profile": []}, False),
        ({"bounds": [own, own], "state": "resolved", "over_unix": alarm["since_unix"] + 5}, False),
    ):
        page.route("**/api/alarms*", lambda route, _request, told={**alarm, **change}: route.fulfill(json=[told]))
        page.goto(f"{served}/alarms")
        page.locator("#list button").first.click()
        assert ("same in every causal model" in page.locator("#why-moment + p").inner_text()) is said, change


def test_how_sure_a_number_is_depends_on_how_it_was_obtained_and_on_the_model(page: Page) -> None:
    said = "([alarm, test]) => import('/common.js').then(({ howSure }) => howSure(alarm, test))"
    fits = {"doubted": False, "transitions": 7}
    for method, reason, test, words in (
        ("exact", None, None, "as sure as the model. Computed exactly"),
        ("sampled", None, None, "as sure as the model. Sampled"),
        ("exact", None, {"doubted": True}, "not sure, as transitions CONTRADICT the model. Computed exactly"),
        ("exact", None, {"doubted": None}, "as sure as the model, which has not been tested yet. Computed exactly"),
        (
            *("exact", None, fits),
            "as sure as the model, which 7 transitions of all agents do not contradict. Computed exactly",
        ),
        ("exact", "stale", fits, "not at all now, as the formula is blind"),
        ("sampled", "model_doubt", fits, "not sure, as transitions CONTRADICT the model. Sampled"),
    ):
        alarm = {"method": method, "summary": "a: P = 1. Exact for this model.", "blind": reason}
        assert page.evaluate(said, [alarm, test]) == f"How sure: {words}."


def test_in_which_causal_models_a_firing_alarm_holds_is_among_its_details(page: Page) -> None:
    for causal_model, agent, models in (
        ("any", "a", "every causal model"),
        ("stable", "a", "every stable causal model"),
        ("any", "an agent with a long name", "every causal model"),
    ):
        verdict = regretted("regret", robust=True, profile={0: (0.6, 0.7)}, offset=0)
        verdict = msgspec.structs.replace(verdict, causal_model=causal_model)
        summary = tell_all(f"regret(clinicians, {GOAL})", verdict, agent=agent).summary
        alarm = {"summary": summary, "state": "firing"}
        fact = "(alarm) => import('/common.js').then(({ causalModels }) => causalModels(alarm))"
        assert page.evaluate(fact, alarm) == ["from now on", f"the same in {models}"]
        assert page.evaluate(fact, {**alarm, "state": "resolved"}) == ["from now on", ""], "it is in its sentence"
        found = "(alarm) => import('/common.js').then(({ finding }) => finding(alarm))"
        assert page.evaluate(found, alarm) == summary.rpartition(" These " if " These " in summary else " Same ")[0]
        assert page.evaluate(found, {**alarm, "state": "resolved"}) == summary


def test_an_alarm_that_ended_with_its_episode_is_not_said_to_be_resolved(page: Page, scene: Scene, served: str) -> None:
    [alarm] = scene.board.found(scene.asked(state="resolved"))
    page.route("**/api/alarms*", lambda route: route.fulfill(json=[{**alarm, "state": "ended"}]))
    page.goto(f"{served}/alarms")
    expect(page.locator("#list .head")).to_contain_text("ENDED with the episode · critical", timeout=SOON)
    page.locator("#list button").click()
    assert page.locator("#why-title").inner_text().strip().startswith("ENDED with the episode · ")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_why_of_an_alarm_that_is_over_says_first_that_there_is_nothing_to_do(
    page: Page, scene: Scene, served: str
) -> None:
    page.goto(f"{served}/alarms?state=over")
    page.locator("#list button").first.click()
    over = page.locator("#why-over")
    expect(over).to_have_text(
        re.compile(r"This alarm is over: nothing to do for it\. Now robot-danger is firing \(\d{4}-.*\)"), timeout=SOON
    )
    assert page.locator("#why p:visible").first.get_attribute("id") == "why-over"
    assert over.locator("a").get_attribute("href") == "agent?name=robot-danger"
    assert page.locator("#why .facts dt", has_text="at its end").count() == 1
    assert not page.locator("#why .runbook").is_visible()
    later = "The picture ends at this step; what came later is on the agent's page."
    assert page.locator("#why-moment + p").inner_text() == later
    assert accessible(page) == []
    scene.board.take(Effects(notices=(Forgotten("robot-danger"),)), scene.now)
    scene.step("robot-0", 0)
    page.reload()
    page.locator("#list button").first.click()
    expect(over).to_be_visible(timeout=SOON)
    with page.expect_response("**/api/agents/robot-danger/history"):
        pass
    assert over.inner_text() == "This alarm is over: nothing to do for it.", "the state of an unknown agent is not said"


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_why_of_an_alarm_that_fires_does_not_say_that_it_is_over(page: Page) -> None:
    page.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    assert page.locator("#why-summary").is_visible()
    assert not page.locator("#why-over").is_visible()
    assert page.locator("#why .runbook").is_visible()


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_why_of_an_alarm_that_fires_shows_its_values_until_now(page: Page, served: str, scene: Scene) -> None:
    page.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    chart, later = page.locator("#why .chart"), page.locator("#why-moment + p")
    assert (chart.get_attribute("aria-label") or "").startswith("regret_fallback: values from ")
    assert "what came later is in the chart above and on the agent's page." in later.inner_text()
    newest = chart.locator("path.newest").get_attribute("d")
    scene.ticks += 2.0
    scene.step("robot-danger", 30)
    expect(chart.locator("path.newest")).not_to_have_attribute("d", newest or "", timeout=SOON)
    page.goto(f"{served}/alarms")
    page.locator("#list button").first.click()
    assert not chart.is_visible(), "the list of alarms has no curves"
    assert "what came later is on the agent's page." in later.inner_text()


def test_why_of_a_blind_alarm_says_of_its_numbers_that_they_are_the_last_known_ones(
    page: Page, scene: Scene, served: str
) -> None:
    [alarm] = scene.board.found(scene.asked(state="firing"))
    page.route("**/api/alarms*", lambda route: route.fulfill(json=[{**alarm, "blind": "stale"}]))
    page.goto(f"{served}/alarms")
    page.locator("#list button").click()
    names = page.locator("#why .facts dt").all_text_contents()
    values = [name for name in names if "nominal" in name]
    assert values
    assert all(name.startswith("last known, ") for name in values)
    assert "from 5 steps ago: when it fired → worst → last known" in names
