"""Make the screenshots of the documentation from a running demo: `make screenshots`.

Beside the agent of `cfmon demo`, other agents run in the same simulator. One of them stops, and becomes blind.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from monitor.cli.input_files import data_file

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

FOLDER: Final = Path(__file__).parents[1] / "pictures"
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OTHERS: Final = 4
SILENT: Final = "bed-4"
INTERVAL: Final = "0.5"
"""Seconds between two steps."""
SEEN: Final = 280
"""Seconds before the first screenshot, so that the charts are filled."""
PATIENCE: Final = 300_000
"""Milliseconds to wait for an alarm."""
ENDING: Final = 30.0
"""Seconds in which a process has to end before it is killed."""
CALM: Final = f"#agents tr[data-state='fine']:has(a:text-is('{SILENT}'))"
INCIDENT: Final = (
    "body:has(#firing > li:only-child)"
    ":has(#agents tr[data-state='firing']:has(a:text-matches('bed-')) td:text-matches('^not met; '))"
    ":has(#agents tr[data-state='blind']):has(#strip-broker[data-on='no'])"
)
"""What is shown: one alarm fires, not that of the demo's own agent, and one agent is blind."""
LASTING: Final = 4.0
"""Seconds for which it has fired."""


@contextmanager
def _running(command: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - passed on
    process = subprocess.Popen(command, text=True, **more)  # noqa: S603 - written below
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _addresses(demo: subprocess.Popen[str], output: Path) -> tuple[str, str]:
    """Return the addresses of the demo's broker and status page, from the first lines that the demo prints."""
    while demo.poll() is None:
        if found := re.search(r"broker +(mqtt://\S+?),.*open (http://\S+)", output.read_text("utf-8"), re.DOTALL):
            return found[1], found[2]
        time.sleep(0.2)
    raise SystemExit(f"screenshots: the demo has ended:\n{output.read_text('utf-8')}")


@contextmanager
def _demo(folder: str) -> Iterator[tuple[str, dict[str, subprocess.Popen[str]]]]:
    """Run the demo with all its agents; yield the address of its status page, and the other agents by name."""
    policies = data_file("policies/icu-sepsis")
    command = [str(Path(sys.executable).with_name("cfmon")), "demo", "--forever", "--interval", INTERVAL]
    with ExitStack() as stack:
        output = Path(folder, "output")  # not a pipe, which would be full at some time
        demo = stack.enter_context(
            _running([*command, "--output", folder], stdout=stack.enter_context(output.open("w")))
        )
        broker, page = _addresses(demo, output)
        agents = {}
        for n in range(1, OTHERS + 1):
            command = [sys.executable, "-m", "monitor.demo.agent", "--model", str(policies / "model.npz")]
            command += ["--policy", str(policies / "deployed.yaml"), "--url", broker]
            command += ["--topic", f"agents/bed-{n}/steps", "--seed", str(n), "--interval", INTERVAL]
            agents[f"bed-{n}"] = stack.enter_context(_running(command))
        yield page, agents


def _keep(shot: bytes, name: str) -> None:
    from PIL import Image  # noqa: PLC0415 - only here

    target = FOLDER / f"{name}.webp"
    Image.open(io.BytesIO(shot)).convert("RGB").save(target, lossless=True, method=6)
    print(f"{target}: {target.stat().st_size / 1000:.0f} KB")  # noqa: T201 - what was made


def _incident(page: Page, url: str) -> tuple[str, dict[str, Any]]:
    """Wait until an alarm has fired for a while; return its agent, and what the monitor then says of it, by path."""
    while True:
        page.locator(INCIDENT).wait_for()
        name = page.locator("#agents tr[data-state='firing'] a").first.inner_text()
        paths = ("api/overview", f"api/agents/{name}/history")
        answers = {path: page.request.get(f"{url.rstrip('/')}/{path}").json() for path in paths}
        overview, agent = answers.values()  # they may be newer than what the page shows
        alone = [alarm["agent"] for alarm in overview["firing"]] == [name] and overview["states"]["blind"] == 1
        judged = [agent["formulas"][0][key] for key in ("state", "outcome")] == ["firing", "regret"]
        if alone and judged and overview["now"] - overview["firing"][0]["since_unix"] >= LASTING:
            return name, answers


def _answering(answer: object) -> Callable[[Route], None]:
    return lambda route: route.fulfill(json=answer)


def _shoot(page: Page, url: str, agents: dict[str, subprocess.Popen[str]]) -> None:
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.wait_for_timeout(1000 * SEEN)
    page.locator(CALM).wait_for()
    agents[SILENT].terminate()
    name, answers = _incident(page, url)
    for path, answer in answers.items():  # so that the alarm is not over before its picture is drawn
        page.route(f"**/{path}*", _answering(answer))
    page.reload()
    page.locator(INCIDENT).wait_for()
    _keep(page.screenshot(animations="disabled"), "page-overview")
    page.get_by_role("button", name=re.compile(f"Why does .* fire for {name}")).click()
    page.locator("#why-picture").wait_for()
    _keep(page.locator("#why").screenshot(animations="disabled"), "page-alarm")
    page.keyboard.press("Escape")
    page.locator("#agents tr[data-state='firing'] a").first.click()
    page.locator(".formula[data-state='firing']").wait_for()
    _keep(page.screenshot(animations="disabled"), "page-agent")


def main() -> None:
    """Run the demo and write the screenshots."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    if CHROMIUM is None:
        raise SystemExit("screenshots: no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, _demo(folder) as (url, agents), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--hide-scrollbars"])
        _shoot(browser.new_page(viewport={"width": 1200, "height": 1000}), url, agents)
        browser.close()


if __name__ == "__main__":
    main()
