"""What docs/agents.md shows for other languages is read by the monitor."""

from __future__ import annotations

import json
import re
from pathlib import Path

from monitor.stream import decode

PAGE = (Path(__file__).resolve().parents[2] / "docs/agents.md").read_text(encoding="utf-8")
VALUES = {"episode": "e", "seq": 4, "state": 3, "action": 1, "time": 9.5}


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_bytes_of_the_recipe_are_a_step() -> None:
    frame = PAGE.partition("<!-- bytes of a step -->")[2].split("```")[1]
    lines = [re.match(r"((?:[0-9a-f]{2} +)+)", line) for line in frame.strip().splitlines()]
    content = b"".join(bytes.fromhex(line[1]) for line in lines if line is not None)
    step = decode("arm-7", content)
    assert (step.episode, step.seq, step.state, step.action) == (7, 0, 3, 1)
    assert len(lines) == 6


def test_the_format_in_c_makes_a_step() -> None:
    literal = re.search(r'"(\{.*\})"', block("c"))
    assert literal is not None
    text = json.loads(f'"{literal[1]}"') % tuple(VALUES.values())
    step = decode("arm-7", text.encode())
    assert (step.episode, step.seq, step.state, step.action, step.time) == tuple(VALUES.values())


def test_the_maps_in_javascript_and_rust_have_the_monitors_keys() -> None:
    script = re.search(r"JSON\.stringify\(\{(.*?)\}\)", block("js"))
    rust = re.search(r"json!\(\{(.*?)\}\)", block("rust"))
    assert script is not None
    assert rust is not None
    keys = {part.split(":")[0].strip() for part in script[1].split(",")}
    assert keys == {"v", *VALUES}
    assert set(re.findall(r'"(\w+)":', rust[1])) == {"v", *VALUES} - {"time"}
