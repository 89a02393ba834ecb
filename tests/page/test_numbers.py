"""Every number on every page is the API's, after each of many updates: read off the page, compared with its answer.

Time stands still in the browser, so that the page asks when the test says so, and shows that answer until the next.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect

from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.web import page as page_module
from monitor.sidecar.web.http import make_app
from monitor.sidecar.web.server import HttpServer
from tests.page.conftest import Scene, unfold
from tests.page.test_bands import CONFIG as LEARNED
from tests.page.test_page import SOON
from tests.runtime.test_learned_streams import ROAD, road
from tests.sidecar.project import write_project
from tests.tiers import examples, scaled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

START, PAUSED = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 2, tzinfo=UTC)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
STATIC = {"500", "90", "95", "10", "4", "0", "0.25", "0.5", "0.75", "1"}
"""Numbers of the pages themselves: points of a curve, levels, the fewest forecasts, a perfect score, an axis."""


STATIC_FILES = Path(page_module.__file__).with_name("static")
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90"><desc>drawn</desc></svg>'


class Walk:
    """An agent that goes where the model lets it, chosen at random, and never into an absorbing state."""

    def __init__(self, scene: Scene, agent: str, state: int = 0) -> None:
        self._scene, self._agent, self._state = scene, agent, state
        self._rng = np.random.default_rng(0)

    def step(self) -> None:
        model = self._scene.loaded.mdp
        actions = [int(action) for action in np.flatnonzero(model.availability[self._state])]
        action = int(self._rng.choice(actions))
        self._scene.step(self._agent, self._state, action=action)
        successors, _ = model.row(self._state, action)
        alive = [int(each) for each in successors if not model.is_absorbing(int(each))]
        self._state = int(self._rng.choice(alive or [self._state]))


@pytest.fixture
def still(browser: Browser) -> Iterator[Page]:
    """A page on which no time passes."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, timezone_id="UTC", locale="en-GB")
    context.set_default_timeout(SOON)
    page = context.new_page()
    page.clock.install(time=START)
    page.clock.pause_at(PAUSED)  # before anything is asked: a jump of the clock would give up what is asked then
    yield page
    context.close()


def opened(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("body[data-live=yes]")
    expect(page.locator("body")).to_have_attribute("data-answers", "1", timeout=SOON)


def all_shown(page: Page) -> None:
    """Choose all times on an agent's page."""
    page.select_option("#span", "all")


def answer(page: Page) -> Any:  # noqa: ANN401 - any document of the API
    """Let the page ask once; return what it was answered, which it shows now."""
    body = page.locator("body")
    before = int(body.get_attribute("data-answers") or 0)
    with page.expect_response(lambda response: "/api/" in response.url) as got:
        page.clock.run_for(1100)
    expect(body).to_have_attribute("data-answers", str(before + 1), timeout=SOON)
    return got.value.json()


# ---- what the page should show, from the API's answer ----


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(math.floor(seconds), UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    gone = max(0, math.floor(seconds + 0.5))
    if gone < 120:
        return f"{gone} s"
    return f"{math.floor(gone / 60 + 0.5)} min" if gone < 7200 else f"{math.floor(gone / 3600 + 0.5)} h"


def ago(seconds: float, now: float) -> str:
    return f"{span(now - seconds)} ago"


def steps_ago(offset: int) -> str:
    return "now" if offset == 0 else f"{offset} step{'' if offset == 1 else 's'} ago"


def profile(told: dict[str, Any]) -> list[list[str]]:
    return [[steps_ago(at["offset"]), number(at["nominal"]), number(at["alternative"])] for at in told["profile"]]


def required(threshold: dict[str, Any] | None) -> str:
    return "" if threshold is None else f"{threshold['comparison']} {threshold['bound']:g}"


def figures(formula: dict[str, Any]) -> str:
    other = (formula["alternative"] or {}).get("value")
    return number(formula["value"]) if other is None else f"{number(formula['value'])} vs {number(other)}"


def from_now(shown: dict[str, Any]) -> str:
    """Both values of a takeover now, if they are not those that the formula asks for."""
    now = [at for at in shown["profile"] if at["offset"] == 0] if shown["alternative"] else []
    later = figures({"value": now[0]["nominal"], "alternative": {"value": now[0]["alternative"]}}) if now else ""
    return "" if later == figures(shown) else later


def values(shown: dict[str, Any]) -> dict[str, str]:
    """The values that the formula asks for, and, if they are others, those of a takeover now."""
    other = shown["alternative"]
    name = f"nominal vs {other['name']}" if other else "value"
    asked, later = figures(shown), from_now(shown)
    return {f"{look_back(shown)}: {name}": asked, f"from now: {name}": later} if later else {name: asked}


def look_back(shown: dict[str, Any]) -> str:
    """From when on a formula that looks back compares."""
    steps = max((at["offset"] for at in shown["profile"]), default=0)
    return "from now" if steps == 0 else f"from {steps} step{'' if steps == 1 else 's'} ago"


def beside(formula: dict[str, Any]) -> str:
    """What is said beside the word of the state."""
    if formula["blind"]:
        before = "no alarm" if formula["alarm"] == "clear" else formula["alarm"]
        return f"before: {before}" if formula["state"] == "blind" else "blind"
    if formula["outcome"] in {"regret", "unavoidable"}:
        other = formula["alternative"]["name"]
        steps = max((at["offset"] for at in formula["profile"]), default=0)
        meets = f"{steps_ago(steps)} would have met" if steps else "meets"
        return f"not met; {other} {meets} it" if formula["outcome"] == "regret" else f"not met, nor by {other}"
    return f"verdict: {formula['outcome']}" if formula["outcome"] else "between episodes"


def blind_since(formula: dict[str, Any]) -> str:
    return "" if formula["blind_since"] is None else f"blind since {moment(formula['blind_since'])}"


def verdict(formula: dict[str, Any]) -> str:
    return f"blind: {formula['blind']}" if formula["blind"] else formula["outcome"] or "between episodes"


def fired(alarm: dict[str, Any], formula: dict[str, Any]) -> bool:
    """Whether it is the alarm with which the formula fires."""
    return bool(alarm["state"] == "firing" and alarm["formula"]["name"] == formula["name"])


def since(formula: dict[str, Any], told: dict[str, Any]) -> str:
    for alarm in told["alarms"]:
        if fired(alarm, formula):
            long = span(math.floor(told["now"]) - math.floor(alarm["since_unix"]))
            when = f"{moment(alarm['since_unix'])}, for {long}"
            return "; ".join(filter(None, [f"{alarm['severity']}, since {when}", blind_since(formula)]))
    return "; ".join(filter(None, [beside(formula), blind_since(formula)]))


def newest(formula: dict[str, Any]) -> list[str]:
    """What the key of a chart says: the newest of each curve, and when that was."""
    curve, alternative = formula["curve"], formula["alternative"]
    said = [f"{'nominal' if alternative else 'value'} {number(curve['value'][-1]) or 'no value'}"]
    if alternative:
        said.append(f"{alternative['name']} {number(curve['alternative'][-1]) or 'no value'}")
    if formula["threshold"]:
        said.append(f"required {required(formula['threshold'])}")
    return [*said, f"newest, at {moment(curve['time'][-1])}"]


def facts(formula: dict[str, Any]) -> dict[str, str]:
    alternative, needed = formula["alternative"], formula["fires_after"]
    bounds, whose = (formula["bounds"], "") if alternative is None else (alternative["bounds"], alternative["name"])
    shown = {
        "verdict": verdict(formula),
        "alarm": formula["alarm"],
        "bounds": f"{number(bounds[0])} to {number(bounds[1])}" + (f" ({whose})" if whose else "") if bounds else "",
        "step": "" if formula["seq"] is None else str(formula["seq"]),
        "time": "" if formula["time_unix"] is None else moment(formula["time_unix"]),
        **values(formula),
        "required": required(formula["threshold"]),
        "fires after": needed and f"{needed} bad verdict{'s' * (needed != 1)}",
    }
    return {name: text for name, text in shown.items() if text}


def course(formula: dict[str, Any], told: dict[str, Any]) -> dict[str, str]:
    """How the value of a firing alarm went, and in which causal models its numbers hold."""
    models = EVERYWHERE.search(formula["summary"])
    said = {"from now on": f"the same in every {models[1] or ''}causal model"} if models else {}
    for alarm in told["alarms"]:
        if fired(alarm, formula) and alarm["threshold"] is not None:
            went = [number(each) or "unknown" for each in (alarm["fired"]["value"], alarm.get("worst"), alarm["value"])]
            end = "last known" if alarm["blind"] else "now"
            name = f"{f'{look_back(alarm)}: ' if from_now(alarm) else ''}when it fired → worst → {end}"
            return {name: " → ".join(went), **said}
    return {}


def drawn(formula: dict[str, Any], told: dict[str, Any]) -> str:
    """What is said of the chart."""
    curve, times = [value for value in formula["curve"]["value"] if value is not None], formula["curve"]["time"]
    values = f"from {number(min(curve))} to {number(max(curve))}" if curve else "none"
    needed = f"; required {required(formula['threshold'])}" if formula["threshold"] else ""
    alarms = sum(alarm["formula"]["name"] == formula["name"] for alarm in told["alarms"])
    ends = f"{moment(times[0])} to {moment(told['now'])}"
    ended = len(formula["curve"]["ended"])
    return f"{formula['name']}: values {values}, {ends}{needed}; alarms: {alarms}; episodes ended: {ended}"


def groups(calibration: dict[str, Any] | None) -> str:
    """Say how many groups of forecasts there are, and how many do not agree with what happened."""
    bins = [] if calibration is None else calibration["bins"]
    return f"In {sum(not each['agrees'] for each in bins)} of {len(bins)} groups"


def bands_of(formula: dict[str, Any]) -> list[list[str]]:
    bands, alternative = formula.get("bands") or {}, formula["alternative"]
    rows = [("nominal" if alternative else "value", formula["value"], bands.get("value"))]
    if alternative:
        rows.append((alternative["name"], alternative["value"], bands.get("alternative")))
    shown = []
    for name, value, band in rows:
        if band and value is not None:
            widths = [band["credible"], band["guaranteed"]]
            texts = [f"{number(each[0])} to {number(each[1])}" if each else "none" for each in widths]
            shown.append([name, number(value), *texts, "" if band["support"] is None else str(band["support"])])
    return shown


EVERYWHERE = re.compile(r" (?:These numbers hold|Same) in every (stable )?(?:causal )?model\.$")


def finding(summary: str, *, fires: bool) -> str:
    """The sentence about an alarm, without how sure it is if that is said beside it."""
    return EVERYWHERE.sub("", summary) if fires else summary


def sure(alarm: dict[str, Any], test: dict[str, Any] | None) -> str:
    """How sure the numbers of a firing alarm are."""
    assert (alarm["blind"], alarm["method"]) == (None, "exact")
    tested = ""
    if test is not None:
        assert not test["doubted"]
        fits = f"{test['transitions']} transitions of all agents do not contradict"
        tested = f", which {'has not been tested yet' if test['doubted'] is None else fits}"
    return f"How sure: as sure as the model{tested}. Computed exactly."


def pace(agent: dict[str, Any], alarm: dict[str, Any]) -> str:
    """How long the steps of an alarm's sentence are."""
    [steps] = [each["horizon"] for each in agent["formulas"] if each["name"] == alarm["formula"]["name"]]
    seconds = agent["seconds_per_step"]
    if seconds is None:
        return ""
    one, most = (f"{float(f'{each:.2g}'):g} s" if each < 10 else span(each) for each in (seconds, steps * seconds))
    return f"Pace: one step in {one}, so {steps} steps in about {most}."


def recurring(known: Sequence[dict[str, Any]], now: float | None) -> str:
    """How often the formula of an alarm that fires did so, and what became of the alarms before."""
    if len(known) < 2 or now is None:
        return ""
    over = [each for each in known if each["over_unix"]]
    lengths = [math.floor(each["over_unix"]) - math.floor(each["began_unix"]) for each in over]
    fates = [each["state"].replace("ended", "ended with the episode") for each in over]
    counted = ", ".join(f"{fates.count(fate)} {fate}" for fate in dict.fromkeys(fates))
    before = f" Of those before, {counted}; median length {span(statistics.median_high(lengths))}."
    first = now - min(each["began_unix"] for each in known)
    unit = 1 if first < 120 else 60
    return f"Recurring: {len(known)} alarms in the last {span(unit * math.ceil(first / unit))}.{before if over else ''}"


def card(
    alarm: dict[str, Any],
    now: float | None = None,
    known: Sequence[dict[str, Any]] = (),
    test: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
) -> list[str]:
    """What the card of an alarm says.

    `known`: the known alarms of its agent and formula, of the last five minutes; `test`: the test of the model;
    `agent`: what is known of its agent.
    """
    times = f"since {moment(alarm['since_unix'])}"
    firing = alarm["state"] == "firing"
    if firing and now is not None:
        times += f", for {span(math.floor(now) - math.floor(alarm['since_unix']))}"
    if alarm["state"] != "firing":
        times = f"from {moment(alarm['began_unix'])} to {moment(alarm['over_unix'])}"
        times += f", for {span(math.floor(alarm['over_unix']) - math.floor(alarm['began_unix']))}"
    words = [
        "ENDED with the episode" if alarm["state"] == "ended" else alarm["state"].upper(),
        alarm["severity"],
        alarm["formula"]["name"],
        alarm["agent"],
        times,
    ]
    steps = "" if agent is None else pace(agent, alarm)
    often = recurring(known, now)
    known_of_it = [sure(alarm, test), steps, often] if firing else ["", "", ""]
    return [" · ".join(words), finding(alarm["summary"], fires=firing), *known_of_it]


def of_the_same(alarms: Iterable[dict[str, Any]], alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The alarms of the agent and formula of one; from a list of alarms, or from the outline of a day."""

    def formula(each: dict[str, Any]) -> str:
        return str(each["formula"] if isinstance(each["formula"], str) else each["formula"]["name"])

    about = (alarm["agent"], formula(alarm))
    return [each for each in alarms if (each["agent"], formula(each)) == about]


def numbers_in(told: object) -> Iterator[str]:
    """Every form in which a page shows a number of an answer; of a curve only its ends, see `drawn`."""
    match told:
        case dict():
            for name, value in told.items():
                if name not in {"curve", "last_minutes"}:
                    yield from numbers_in(value)
        case list():
            for value in told:
                yield from numbers_in(value)
        case bool() | None | str():
            pass
        case int():
            yield str(told)
        case float():
            yield from (number(told), f"{told:g}", f"{told:.2f}", f"{100 * told:.0f}", f"{100 * (1 - told):g}")
            yield f"{100 * told:g}"


def texts_in(told: object) -> Iterator[str]:
    match told:
        case dict():
            for value in told.values():
                yield from texts_in(value)
        case list():
            for value in told:
                yield from texts_in(value)
        case str():
            yield told
        case _:
            pass


def strangers(text: str, told: object, *more: str) -> list[str]:
    """Return the lines of a text with a number that is not of the answer `told`, nor in `more`."""
    for each in sorted({*texts_in(told), *more}, key=len, reverse=True):
        if NUMBER.search(each) and not NUMBER.fullmatch(each):
            text = text.replace(each, " ")
    known = {*numbers_in(told), *STATIC}
    return [line for line in text.splitlines() if not {*NUMBER.findall(line)} <= known]


# ---- what the page shows ----

READ = """() => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const axis of document.querySelectorAll(".axis")) axis.hidden = true;  // of the chart, not of the answer
  const cells = (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent));
  return {
  state: document.getElementById("state").textContent,
  text: document.body.innerText,
  formulas: [...document.querySelectorAll("#formulas > section")].map((card) => ({
    summary: card.querySelector(":scope > .summary").textContent,
    details: [...card.querySelectorAll(":scope > .more > .details > li")].map((line) => line.textContent),
    word: card.querySelector("h2").lastElementChild.textContent,
    since: card.querySelector(":scope > .quiet").textContent,
    key: [...card.querySelectorAll(".legend li:not([hidden])")].map((each) => each.textContent),
    facts: Object.fromEntries([...card.querySelectorAll(":scope .facts > div:not([hidden])")].map(
      (fact) => [...fact.children].map((each) => each.textContent))),
    profile: cells([...card.querySelectorAll(":scope > .more > .scroll tbody tr")]),
    drawn: card.querySelector(".chart").getAttribute("aria-label"),
    bands: cells([...card.querySelectorAll(".bands tbody tr")]).map((row) => row.slice(0, 5)),
  })),
  rows: cells([...document.querySelectorAll("#agents tr")]),
  alarms: [...document.querySelectorAll(".cards > li:has(.sure)")].map(
    (card) => [".head span:last-child", ".summary", ".pace + br + span", ".pace", ".pace + br + span + br + span"].map(
      (what) => card.querySelector(what).textContent)),
  };
}"""


def check_agent(page: Page, told: dict[str, Any]) -> None:
    shown = page.evaluate(READ)
    more = []
    for formula, part in zip(told["formulas"], shown["formulas"], strict=True):
        assert part["profile"] == profile(formula)
        assert part["facts"] == facts(formula) | course(formula, told)
        fires = any(fired(alarm, formula) for alarm in told["alarms"])
        assert part["summary"] == (finding(formula["summary"], fires=fires) or "No verdict: between episodes.")
        assert part["details"] == formula["details"]
        assert part["word"] == formula["state"]
        assert part["since"] == since(formula, told)
        assert part["key"] == newest(formula)
        assert part["drawn"] == drawn(formula, told)
        more += [since(formula, told), *newest(formula), *facts(formula).values(), groups(formula["calibration"])]
        expected = bands_of(formula)
        assert part["bands"] == expected
        more += [cell for row in expected for cell in row]
    state = f"last message {ago(told['last_message'], told['now'])}, episode {told['episode']}"
    assert shown["state"] == state
    alarms = told["alarms"]
    cards = [card(alarm, told["now"], of_the_same(alarms, alarm), told["model_doubt"], told) for alarm in alarms]
    assert shown["alarms"] == cards
    lines = [line for each in cards for line in each]
    assert strangers(shown["text"], told, state, moment(told["now"]), *more, *lines) == []


def counted(formula: dict[str, Any]) -> list[str]:
    """The values from now on, before those that the formula asks for; a band is beside the latter."""
    asked, later = figures(formula), from_now(formula)
    threshold = required(formula["threshold"])
    if not later:
        return [asked, threshold, ""]
    banded = bool(formula.get("bands"))
    back = look_back(formula)
    return [f"{asked} {back}", threshold, ""] if banded else [f"{later} from now", threshold, f"{back} {asked}"]


def said(agent: dict[str, Any], formula: dict[str, Any], words: dict[str, str]) -> str:
    """What a row says besides its numbers: why it is blind, and what is known against the agent."""
    doubted, deviates = agent["doubt"]["doubted"], agent["deviation"]["notable"]
    against = [
        blind_since(formula),
        formula["blind"] and (formula["detail"] or words[formula["blind"]]),
        doubted and "IN DOUBT: its transitions contradict the model",
        deviates and "NOT ITS POLICY: its actions differ from it",
    ]
    return f"{'; '.join(filter(None, against))} Runbook"  # the link is hidden unless the formula is blind


def check_overview(page: Page, told: dict[str, Any]) -> None:
    shown = page.evaluate(READ)
    words = {group["reason"]: group["words"] for group in told["blind"]}
    rows = [
        [agent["name"], formula["name"], formula["state"], beside(formula),
         *counted(formula), "", facts(formula).get("step", ""),
         ago(agent["last_message"], told["now"]), "Why?", said(agent, formula, words)]
        for agent in told["agents"]
        for formula in agent["formulas"]
    ]  # fmt: skip
    assert shown["rows"] == rows
    agents = {agent["name"]: agent for agent in told["agents"]}
    cards = [
        *(
            card(alarm, told["now"], of_the_same(told["day"], alarm), told["doubt"]["model"], agents[alarm["agent"]])
            for alarm in told["firing"]
        ),
        *map(card, told["recent"]),
    ]
    assert shown["alarms"] == cards
    about = f"{told['status']['model']['name']} {told['status']['model']['sha256'][:12]}"
    more = [
        about,
        "5 min ago",
        "24 h ago",
        f"{told['lag']['seconds']:.2f} s at most",
        *(cell for row in rows for cell in row),
        *(line for each in cards for line in each),
        moment(told["now"]),
    ]
    assert strangers(shown["text"], told, *more) == []


def check_alarms(page: Page, told: list[dict[str, Any]]) -> None:
    shown = page.evaluate(READ)
    cards = [card(alarm) for alarm in told]
    assert shown["alarms"] == cards
    assert shown["state"] == f"{len(told)} alarm{'' if len(told) == 1 else 's'}"
    assert strangers(shown["text"], told, shown["state"], *(line for each in cards for line in each)) == []


# ---- tests ----


@pytest.fixture
def scene(calm: Scene) -> Scene:
    """Few agents, so that each update is quick."""
    return calm


@scaled
def test_every_number_on_an_agents_page_is_the_apis_after_each_update(still: Page, served: str, scene: Scene) -> None:
    walk = Walk(scene, "ada")
    walk.step()
    opened(still, f"{served}/agent?name=ada")
    all_shown(still)
    tables = set()
    for _ in range(examples(10, 100)):
        walk.step()
        told = answer(still)
        check_agent(still, told)
        tables.add(str(profile(told["formulas"][0])))
    assert len(tables) > 3, "they change, or a page that is never updated would pass"


@scaled
@pytest.mark.parametrize(("path", "check"), [("", check_overview), ("/alarms", check_alarms)])
def test_every_number_in_the_lists_is_the_apis_after_each_update(
    still: Page, served: str, scene: Scene, path: str, check: Callable[[Page, Any], None]
) -> None:
    walks = [Walk(scene, "ada"), Walk(scene, "bob", 8)]
    opened(still, f"{served}{path}")
    for _ in range(examples(5, 100)):
        for walk in walks:
            walk.step()
        check(still, answer(still))


@scaled
def test_every_number_of_a_learned_model_is_the_apis(still: Page, tmp_path: Path, scene: Scene) -> None:
    del scene
    (tmp_path / "learned").mkdir()
    scene = Scene(tmp_path / "learned", write_project(tmp_path / "project", road(), LEARNED))
    server = HttpServer(make_app(scene.sources()), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    try:
        walk = Walk(scene, "ada", ROAD)
        walk.step()
        opened(still, f"{server.url}/agent?name=ada")
        all_shown(still)
        for _ in range(examples(3, 30)):
            walk.step()
            check_agent(still, answer(still))
    finally:
        server.stop()


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_why_shows_the_numbers_at_once_and_the_picture_when_it_comes(page: Page, scene: Scene) -> None:
    for state in (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30):
        scene.step("robot-danger", state)
    drawing = True
    page.route(
        "**/picture/*",
        lambda route: (
            route.fulfill(status=202) if drawing else route.fulfill(content_type="image/svg+xml", body=PICTURE)
        ),
    )
    page.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    told = scene.board.found(scene.asked(agent="robot-danger", state="firing"))[0]
    unfold(page)
    tables = page.locator("#why table")
    rows = {row.locator("td").first.inner_text(): row.locator("td").all_inner_texts()[1:] for row in
            tables.first.locator("tbody tr").all()}  # fmt: skip
    fired = told["fired"]
    assert rows["step"] == [str(fired["seq"]), str(told["seq"])]
    assert rows["nominal"] == [number(fired["value"]), number(told["value"])]
    assert rows["fallback"] == [number(each["alternative"]["value"]) for each in (fired, told)]
    assert rows["required"] == [">= 0.8", ">= 0.8"]
    shown = [row.locator("td").all_inner_texts() for row in tables.nth(1).locator("tbody tr").all()]
    assert shown == profile(told)
    assert page.locator("#why .details li").all_inner_texts() == told["details"]
    assert page.locator("#why-wait").inner_text().startswith("The picture is being drawn")
    assert not page.locator("#why-picture").is_visible()
    drawing = False
    expect(page.locator("#why-picture")).to_be_visible(timeout=SOON)
    assert page.locator("#why-wait").inner_text() == ""


def test_a_picture_is_asked_for_only_while_it_is_explained(still: Page, served: str, scene: Scene) -> None:
    for state in (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30):
        scene.step("robot-danger", state)
    asked: list[str] = []

    def drawing(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=202)

    still.route("**/picture/*", drawing)
    opened(still, served)
    why = still.get_by_role("button", name="Why does regret_fallback fire for robot-danger?")
    for _ in range(2):
        with still.expect_response("**/picture/*"):
            why.click()
        still.get_by_role("button", name="Close").click()
    for _ in range(3):
        answer(still)
    assert len(asked) == 2


def test_a_picture_that_is_no_xml_is_a_problem(still: Page, served: str, scene: Scene) -> None:
    for state in (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30):
        scene.step("robot-danger", state)
    broken = PICTURE.replace("</desc>", "")
    still.route("**/picture/*", lambda route: route.fulfill(content_type="image/svg+xml", body=broken))
    opened(still, served)
    still.get_by_role("button", name="Why does regret_fallback fire for robot-danger?").click()
    words = "The picture cannot be drawn: it is not well-formed XML"
    expect(still.locator("#why-wait")).to_have_text(words, timeout=SOON)
    assert not still.locator("#why-picture").is_visible()


def test_no_element_of_a_page_is_found_by_a_selector() -> None:
    """Another one may fit it, such as the chart's legend, which is a table too. Parts hold on to what they made."""
    for script in sorted(STATIC_FILES.glob("*.js")):
        text = script.read_text("utf-8")
        assert not re.findall(r"querySelector|getElementsBy|innerHTML", text), script.name
