"""axe over pages of the built site, by day and by night: `python -m tests.docs.readable CHROMIUM SITE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

PAGES: Final = ("index", "first-steps", "concepts", "configuration", "mathematics", "api", "runbooks/index")
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa"]}


def main(chromium: str, site: Path) -> int:
    """Print what axe finds, and how many pages it has read; 1 if it found anything."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [line for name in PAGES for line in violations(browser, site, name)]
        browser.close()
    print("\n".join([*found, f"{2 * len(PAGES)} pages read"]))  # noqa: T201 - that is what it is for
    return 1 if found else 0


def violations(browser: Browser, site: Path, name: str) -> list[str]:
    """One line for each rule that a page breaks."""
    lines = []
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page = browser.new_page(color_scheme=scheme)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))  # noqa: B023 - the page is closed below
        page.goto((site / f"{name}.html").as_uri())
        broken = Axe().run(page, options=RULES).response["violations"]
        lines += [f"{name}, {scheme}: {rule['id']}: {rule['nodes'][0]['html']}" for rule in broken]
        lines += [f"{name}: asks {address}" for address in asked if not address.startswith("file:")]
        page.close()
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
