"""Draw all pictures of the documentation into `docs/pictures`: `python -m docs.site.pictures`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from docs.site.alarms import alarm
from docs.site.drawings import DRAWINGS

__all__ = ["FOLDER", "PICTURES"]

FOLDER: Final = Path(__file__).parents[1] / "pictures"
PICTURES: Final[dict[str, Callable[[], str]]] = {
    **DRAWINGS,
    "alarm-sepsis": partial(alarm, "icu-sepsis", 2, steps=30),
    "alarm-ice": partial(alarm, "frozen-lake", 1, steps=60),
    "alarm-fog": partial(alarm, "ice-fog", 5, steps=60),
}
"""Name of the file -> function that returns it as SVG."""

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, drawn in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(drawn(), encoding="utf-8")
