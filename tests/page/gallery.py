"""The gallery: what the pages look like in each state, in one file of screenshots, `var/gallery.html` (`make gallery`).

The answers of the API are made up from those of a real board, so that states that are rare or large can be looked at.
"""

from __future__ import annotations

import base64
import html
import json
import math
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docs.site.pictures import PICTURES
from docs.site.screenshots import CHROMIUM
from monitor.alarm.blindness import BLIND_WORDS
from monitor.evidence.document import read_evidence
from monitor.exact import tables
from monitor.picture import draw, draw_alarm, explain
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.web.http import make_app
from monitor.sidecar.web.server import HttpServer
from tests.page.conftest import FLAGS, Scene
from tests.picture.test_explanation import evidence_of
from tests.runtime.test_learned_streams import POLICIES, ROAD, TEXT, WALK, road
from tests.servers import PATIENCE
from tests.worlds.test_stream import House

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Told = dict[str, Any]
WAY_TO_DANGER: Final = (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30)
TARGET: Final = Path(__file__).parents[2] / "var" / "gallery.html"
STYLE: Final = """
body { font: 1rem system-ui; margin: 1rem }
figure { display: inline-block; vertical-align: top; margin: .5rem }
img { max-height: 900px; max-width: 44rem; border: 1px solid #999 }
"""
VIEWS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    "print": {"color_scheme": "light", "viewport": {"width": 800, "height": 1100}},
}


# ---- the answers ----


class Answers:
    """The answers of the API in each state, from one board on which an alarm fires, at one time."""

    def __init__(self, scene: Scene) -> None:
        for state in WAY_TO_DANGER:
            scene.ticks += 2.0
            scene.step("robot-1", state)
        for _ in range(5):
            scene.step("robot-2", 0)
        self._told = scene.sources().overview("", 100)
        self._agent = self._told["agents"][0]
        [self._fine] = [agent for agent in self._told["agents"] if agent["name"] == "robot-2"]
        self.life, self._fine_life = (scene.sources().life(name, 100) or {} for name in ("robot-1", "robot-2"))
        self.alarms = scene.board.found(scene.asked())

    def overview(self, *agents: Told, **changes: Any) -> Told:  # noqa: ANN401 - parts of a document
        """Return an overview of these agents, with their alarms; `changes` replaces parts of it."""
        told = deepcopy(self._told)
        ordered = sorted(agents, key=lambda agent: ORDER.index(agent["formulas"][0]["state"]))
        rows = [(agent, formula) for agent in ordered for formula in agent["formulas"]]
        firing = [self._alarm(agent["name"]) for agent, row in rows if row["state"] == "firing"]
        blind = [agent["name"] for agent, row in rows if row["state"] == "blind"]
        told |= {
            "agents": ordered[:100],
            "firing": firing[:100],
            "recent": [],
            "blind": [{"agent": name, "reason": "stale", "words": "no step has arrived for too long", "detail": "",
                       "first": "Look at the agent.", "complete": False, "formulas": ["regret_fallback"]}
                      for name in blind],
            "states": {state: sum(row["state"] == state for _, row in rows) for state in ORDER},
            "day": [self._outline(alarm, 0.0, None) for alarm in firing],
            "lag": {"agent": "robot-1", "seconds": 0.04} if agents else None,
            "doubt": {"model": {"doubted": False, "log10_e": 0.3, "transitions": 4210, "departing": []}, "agents": []},
        }  # fmt: skip
        told["count"] = {
            "firing": len(firing),
            "blind": len(blind),
            "agents": len(agents),
            "found": len(agents),
            "day": len(firing),
        }
        return {**told, **changes}

    def agent(self, name: str, state: str, phase: float = 0.0) -> Told:
        """Return an agent in a state, with five minutes of values that swing."""
        agent = deepcopy(self._agent if state in {"firing", "pending"} else self._fine)
        [formula] = agent["formulas"]
        now = self._told["now"]
        low = {"firing": 0.62, "pending": 0.78, "fine": 0.93}.get(state, 0.9)
        times = [now - 300 + 5 * n for n in range(61)]
        fall = [min(1.0, max(0.0, (n - 45) / 10)) for n in range(61)]
        values: list[float | None] = [
            0.95 + 0.03 * math.sin(n / 5 + phase) - (0.97 - low) * drop for n, drop in enumerate(fall)
        ]
        others: list[float | None] = [0.985 + 0.01 * math.sin(n / 7 + phase) for n in range(61)]
        ended = []
        for n in range(20, 26):
            if phase % 3 == 1:
                values[n] = others[n] = None
        if phase % 3 == 2:  # an episode that ends with its goal missed, and the next one
            values[29], ended = 0.0, [times[30]]
            values[30:33] = others[30:33] = [None] * 3
        if state in {"blind", "unknown"}:
            values[48:] = others[48:] = [None] * 13
        known = values[-1] is not None
        formula |= {
            "state": state,
            "alarm": state if state in {"firing", "pending"} else "clear",
            "blind": "stale" if state == "blind" else None,
            "blind_since": now - 60.0 if state == "blind" else None,
            "outcome": None if not known else "regret" if state in {"firing", "pending"} else "safe",
            "value": values[-1],
            "alternative": {"name": "fallback", "value": others[-1], "bounds": None},
            "seq": 410 if known else None,
            "last_minutes": {"time": times, "value": values, "alternative": others, "ended": ended},
        }
        return {**agent, "name": name, "last_message": now - (60.0 if state == "blind" else 0.3)}

    def agent_of(self, *states: str) -> Told:
        """Return an agent's page with one formula in each of these states."""
        life = deepcopy(self.life)
        rows = []
        for n, state in enumerate(states):
            [formula] = (life if state in {"firing", "pending"} else self._fine_life)["formulas"]
            [row] = self.agent("robot-1", state, float(n))["formulas"]
            said = formula["summary"].replace("robot-2", "robot-1")
            said = {"blind": BLIND_WORDS["stale"], "unknown": ""}.get(state, said)
            rows.append({**formula, **row, "name": f"formula_{n}", "curve": row["last_minutes"], "summary": said})
        life["formulas"] = sorted(rows, key=lambda row: ORDER.index(row["state"]))
        firing = [row["name"] for row in rows if row["state"] == "firing"]
        alarm = self._alarm("robot-1")
        life["alarms"] = [{**alarm, "id": name, "formula": {**alarm["formula"], "name": name}} for name in firing]
        return life

    def past(self, name: str, hours: float, minutes: float) -> Told:
        """Return an alarm of the last day that is over."""
        return self._outline(self._alarm(name), 3600 * hours, 60 * minutes)

    def _alarm(self, name: str) -> Told:
        alarm = deepcopy(self._told["firing"][0])
        alarm["summary"] = alarm["summary"].replace("robot-1", name)
        since = self._told["now"] - 65.0
        return {**alarm, "id": f"alarm of {name}", "agent": name, "since_unix": since, "began_unix": since}

    def _outline(self, alarm: Told, ago: float, lasted: float | None) -> Told:
        began = alarm["began_unix"] - ago
        over = None if lasted is None else began + lasted
        state = "firing" if over is None else "resolved"
        times = {"state": state, "began_unix": began, "over_unix": over}
        return {"id": f"{alarm['id']} {ago}", "agent": alarm["agent"], "formula": alarm["formula"]["name"],
                "severity": alarm["severity"], **times}  # fmt: skip


ORDER: Final = ("firing", "pending", "blind", "unknown", "fine")


def _many(answers: Answers) -> Told:
    mixed = {0: "firing", 4: "firing", 7: "pending", 11: "blind", 12: "blind", 30: "unknown"}
    agents = [answers.agent(f"robot-{n}", mixed.get(n, "fine"), float(n)) for n in range(1000)]
    told = answers.overview(*agents)
    told["day"] += [answers.past(f"robot-{n}", 2.1 * n + 0.2, 7 * n) for n in (1, 3, 4, 0, 2, 9, 1, 5, 6, 7, 8)]
    told["count"]["day"] = len(told["day"])
    return told


def _doubted(answers: Answers) -> Told:
    loud = {"state": 0, "action": 1, "successor": 8, "seen": 30, "of": 40, "expected": 13.333}
    doubt = {"doubted": True, "log10_e": 4.5, "transitions": 120, "departing": [loud]}
    told = answers.overview(answers.agent("robot-1", "fine"), answers.agent("robot-2", "fine", 1.0))
    deviation = {"share": 0.37, "steps": 100, "notable": True}
    told["doubt"]["agents"] = [{"agent": "robot-2", **doubt}]
    told["agents"][1]["doubt"], told["agents"][0]["deviation"] = doubt, deviation
    return {**told, "deviating": [{"agent": "robot-1", **deviation}]}


def _disconnected(answers: Answers) -> Told:
    told = answers.overview(*(answers.agent(f"robot-{n}", "blind", float(n)) for n in range(3)))
    told["status"]["connected"] = False
    return {**told, "problem": "not connected to the broker"}


STATES: Final[dict[str, Callable[[Answers], Told]]] = {
    "firing": lambda made: made.overview(
        made.agent("robot-1", "firing"), *(made.agent(f"robot-{n}", "fine", float(n)) for n in range(2, 6))
    ),
    "many": _many,
    "none": lambda made: made.overview(),
    "one": lambda made: made.overview(made.agent("robot-1", "fine")),
    "pending": lambda made: made.overview(made.agent("robot-1", "pending"), made.agent("robot-2", "fine", 1.0)),
    "blind": lambda made: made.overview(made.agent("robot-1", "blind"), made.agent("robot-2", "fine", 1.0)),
    "unknown": lambda made: made.overview(made.agent("robot-1", "unknown"), made.agent("robot-2", "fine", 1.0)),
    "doubted": _doubted,
    "disconnected": _disconnected,
}


PAGES: Final[dict[str, tuple[str, Callable[[Answers], Any]]]] = {
    "agent": ("agent?name=robot-1", lambda made: made.life),
    "agent-of-all": ("agent?name=robot-1", lambda made: made.agent_of(*reversed(ORDER))),
    "alarms": ("alarms", lambda made: made.alarms),
}
"""States of the other pages."""


# ---- the pictures ----


def _of_a_world() -> str:
    house = House(slice(360, 400))
    evidence = read_evidence(house.evidence()[-1])
    return draw_alarm(evidence, house.loaded.model, house.loaded.tables, house.loaded.models)[0]


def _learned() -> str:
    model, policies = road(), tables(POLICIES, road())
    evidence = evidence_of(TEXT, ((ROAD, WALK), (ROAD, WALK)), model=model, tables=policies, causal_model="any")
    return draw(explain(evidence, model, policies), model)


ALARMS: Final[dict[str, Callable[[], str]]] = {
    "why, states without names": PICTURES["alarm-sepsis"],
    "why, a grid": PICTURES["alarm-ice"],
    "why, hidden states": PICTURES["alarm-fog"],
    "why, numbers": _of_a_world,
    "why, learned bands": _learned,
}
"""What *Why?* shows, by the kind of model."""


# ---- the screenshots ----


def show(page: Page, url: str, answers: Answers, state: str) -> None:
    """Open the overview on a made-up state, or another page."""
    path, made = PAGES[state] if state in PAGES else ("", STATES["firing" if state in ALARMS else state])
    told = made(answers)
    page.unroute("**/api/**")
    page.route("**/api/**", lambda route: route.fulfill(body=json.dumps(told), content_type="application/json"))
    page.goto(f"{url}/{path}")
    page.wait_for_selector("body[data-live=yes]", timeout=1000 * PATIENCE)
    if state in ALARMS:
        drawn = ALARMS[state]()
        page.route("**/picture/*", lambda route: route.fulfill(body=drawn, content_type="image/svg+xml"))
        page.get_by_role("button", name="Why does").first.click()
        page.locator("#why-picture svg").wait_for(timeout=1000 * PATIENCE)
        page.set_viewport_size({"width": page.evaluate("innerWidth"), "height": 2400})


def _shoot(browser: Browser, url: str, answers: Answers) -> str:
    figures = []
    for state in (*STATES, *PAGES, *ALARMS):
        figures.append(f"<h2>{state}</h2>")
        for view, context in VIEWS.items():
            opened = browser.new_context(**context)
            page = opened.new_page()
            show(page, url, answers, state)
            if view == "print":
                page.emulate_media(media="print")
            page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            picture = base64.b64encode(page.screenshot(full_page=True, animations="disabled")).decode()
            words = html.escape(f"{state}, {view}")
            image = f'<img alt="{words}" src="data:image/png;base64,{picture}">'
            figures.append(f"<figure><figcaption>{words}</figcaption>{image}</figure>")
            opened.close()
    return "\n".join(figures)


def main() -> None:
    """Write the gallery."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    if CHROMIUM is None:
        raise SystemExit("gallery: no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        scene = Scene(Path(folder))
        server = HttpServer(make_app(scene.sources()), HttpConfig(listen="127.0.0.1:0"))
        server.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            figures = _shoot(browser, server.url, Answers(scene))
        finally:
            browser.close()
            server.stop()
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    title = f"The status page in its states, {time.strftime('%Y-%m-%d')}"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    page = f'<!doctype html><html lang="en">{head}<h1>{title}</h1>{figures}</html>'
    TARGET.write_text(page, encoding="utf-8")
    print(f"gallery: {TARGET}")  # noqa: T201 - where to look


if __name__ == "__main__":
    main()
