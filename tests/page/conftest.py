"""A real board behind a real server: agents on the frozen lake, one of them in danger, one of them blind."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docs.site.screenshots import CHROMIUM
from monitor.cli.input_files import data_file
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.events import Evaluate, Event, Message
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.alarm_history import AlarmFilter
from monitor.sidecar.web.http import Sources, make_app
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.server import HttpServer
from monitor.types import Instant
from tests.servers import PATIENCE, end, wait_until
from tests.sidecar.watched import show
from tests.tiers import first

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    *("--headless", "--no-sandbox", "--remote-debugging-port=0", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync"),
    *("--disable-gpu", "--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars", "--password-store=basic"),
)
SCREENSHOTS = Path(__file__).parents[2] / "var" / "screenshots"
"""Kept, to be looked at."""


class Scene:
    """What the page shows, and the means to let more happen."""

    def __init__(self, folder: Path, config: Path | None = None) -> None:
        self.loaded = assemble(config or data_file("config/frozen-lake.yaml"), {"CFMON_TRUST__ENABLED": "false"})
        self.pipeline = self.loaded.pipeline("cfmon-test")
        self.board = StatusView(self.loaded.watched)
        self.evidence: dict[str, bytes] = {}
        self.problem = ""
        self.ticks = 0.0
        self.start = time.time() - 60.0
        """A minute ago, so that what happens is in the last minutes."""
        self._seq: dict[str, int] = {}
        self.objects = folder / "objects"
        self.objects.mkdir()
        for name, content in self.loaded.objects().items():
            (self.objects / name).write_bytes(content)

    @property
    def now(self) -> Instant:
        """The monitor's time."""
        return Instant(self.start + self.ticks, self.ticks)

    def feed(self, event: Event) -> None:
        """Let an event happen."""
        effects = self.pipeline.step(event)
        self.evidence |= {file.id: file.content for file in effects.evidence}
        show(self.board, effects, event.now)

    def step(self, agent: str, state: int, *, skip: int = 0, action: int | None = None) -> None:
        """The agent is in a state, and does there what its policy says."""
        self.ticks += 0.01
        now = self.now
        self._seq[agent] = self._seq.get(agent, -1) + 1 + skip
        table = self.loaded.tables["nominal"].actions
        assert table is not None
        taken = int(table[state]) if action is None else action
        step = {"v": 1, "episode": "one", "seq": self._seq[agent], "state": state, "action": taken, "time": now.wall}
        self.feed(Message(now, f"agents/{agent}/steps", json.dumps(step).encode()))
        self.feed(Evaluate(now))

    def asked(self, **named: str) -> AlarmFilter:
        """What is asked of the list of alarms."""
        return AlarmFilter(**named)  # type: ignore[arg-type] # all of them are names

    def sources(self) -> Sources:
        return Sources(
            view=self.board,
            exposition=lambda: b"",
            evidence=self.evidence.get,
            signature=lambda _name: None,
            health=lambda: "",
            readiness=lambda: self.problem,
            status=self.status,
            pictures=Pictures(self.evidence.get, self.objects),
            objects=lambda sha256: (self.objects / sha256).read_bytes(),
        )

    def status(self) -> dict[str, Any]:
        return {
            "version": "0",
            "client_id": "cfmon-test",
            "broker": "mqtt://localhost:1883",
            "connected": True,
            "queue": 0,
            "unsent": 0,
            "store": "ok",
            "model": {"name": "model.npz", "sha256": self.loaded.identity.model_sha256},
            "policies": [],
        }


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Twelve agents: one in danger, one whose steps are missing, the others well.

    They go where the test wants them, so whether they follow the model is not asked.
    """
    scene = Scene(tmp_path)
    for n in [*map(str, range(10)), "blind"]:
        for state in (0, 0, 0, 0, 0):
            scene.step(f"robot-{n}", state)
    scene.step("robot-blind", 0, skip=2)
    scene.ticks += 1.0
    scene.feed(Evaluate(scene.now))
    for state in (0, 1, 2, 10, 11, 12, 13, 14, 15, 14, 22, 30):  # into the corner between two holes
        scene.step("robot-danger", state)
    return scene


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close no idle connection: on a machine under load Chromium may use one at the very moment it is closed.

    There a picture takes minutes too, as it is drawn behind everything else.
    """
    for name in ("server.PATIENCE", "server.KEEP_ALIVE", "pictures.PATIENCE"):
        monkeypatch.setattr(f"monitor.sidecar.web.{name}", 600)
    monkeypatch.setattr("monitor.sidecar.web.pictures.NICE", 0)


@pytest.fixture
def served(scene: Scene) -> Iterator[str]:
    server = HttpServer(make_app(scene.sources()), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Chromium for all modules; where it listens."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    folder = tmp_path_factory.mktemp("chromium")
    where = folder / "DevToolsActivePort"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([CHROMIUM, *FLAGS, f"--user-data-dir={folder}"], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or (where.exists() and where.read_text()), "Chromium listens")
        assert process.poll() is None, (folder / "log").read_text()
        yield f"http://127.0.0.1:{where.read_text().splitlines()[0]}"
    finally:
        end(process)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """For one module only: as long as Playwright runs, an event loop runs in this thread, and others can't."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium, timeout=1000 * PATIENCE)
        yield browser
        browser.close()  # the connection


@pytest.fixture(params=first(1, ["light", "dark"]))
def page(browser: Browser, served: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page, live, in both schemes; an error on its console fails the test."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1200, "height": 900})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
    page.goto(served)
    page.wait_for_selector("body[data-live=yes]")
    yield page
    context.close()
    assert errors == []


def unfold(page: Page) -> None:
    """Unfold the details of all formulas of an agent's page."""
    page.locator("details.more").first.wait_for(state="attached")
    page.locator("details.more").evaluate_all("all => all.forEach((each) => { each.open = true; })")


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    """A page that has not been anywhere yet; what fails on it is the test's to look at."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(1000 * PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture
def calm(tmp_path: Path) -> Scene:
    """Two agents that are well."""
    scene = Scene(tmp_path)
    for agent in ("robot-0", "robot-1"):
        for state in (0, 0, 0):
            scene.step(agent, state)
    return scene


@pytest.fixture
def calmly_served(calm: Scene) -> Iterator[str]:
    server = HttpServer(make_app(calm.sources()), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - a function
    """Keep a screenshot under the name of what it shows."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def shoot(page: Page, what: str, *, whole: bool = True) -> None:
        scheme = request.node.callspec.params.get("page", "") if hasattr(request.node, "callspec") else ""
        page.screenshot(path=SCREENSHOTS / f"page-{what}-{scheme}.png", full_page=whole)

    return shoot
