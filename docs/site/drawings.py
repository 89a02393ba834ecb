"""Pictures of the concepts: one small model, the walker of the language page, with computed numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from monitor.causal.row import counterfactual_row, row_bounds
from monitor.evaluation import check
from monitor.model import MDP
from monitor.picture.svg import AHEAD, ALTERNATIVE, FAINT, INK, NOMINAL, PAPER, RULE, Canvas

__all__ = ["DRAWINGS"]

WALK, CRAWL = 0, 1
START, LEDGE, HOME, FALLEN = 0, 1, 2, 3
PLACES: Final = ("start", "ledge", "home", "fallen")
ROWS: Final = {
    (START, WALK): {LEDGE: 0.8, FALLEN: 0.2},
    (START, CRAWL): {START: 0.5, LEDGE: 0.45, FALLEN: 0.05},
    (LEDGE, WALK): {HOME: 0.8, FALLEN: 0.2},
    (LEDGE, CRAWL): {LEDGE: 0.5, HOME: 0.45, FALLEN: 0.05},
}
WALKER: Final = MDP.from_transitions(
    states=4,
    actions=2,
    transitions=[(s, a, after, p) for (s, a), row in ROWS.items() for after, p in row.items()]
    + [(s, a, s, 1.0) for s in (HOME, FALLEN) for a in (WALK, CRAWL)],
    labels={"home": [HOME]},
)
WIDTH: Final = 760.0


def model() -> str:
    """Draw an MDP: states, actions, probabilities."""
    canvas = Canvas(WIDTH, "A Markov decision process", "Four states, two actions, and the chance of each step.")
    at = {START: (110.0, 90.0), LEDGE: (340.0, 90.0), HOME: (570.0, 90.0), FALLEN: (340.0, 240.0)}
    for state, (x, y) in at.items():
        canvas.dot((x, y), 38, fill=PAPER, ink=INK, width=1.6)
        canvas.text((x, y + 5), PLACES[state], bold=True, anchor="middle")
    for (state, action), row in ROWS.items():
        ink, dash, side = (NOMINAL, "", -9.0) if action == WALK else (ALTERNATIVE, "7 4", 9.0)
        for after, chance in row.items():
            if after == state:
                canvas.text(
                    (at[state][0], at[state][1] - 48), f"crawl {chance:g}: stays", size=12, ink=ink, anchor="middle"
                )
                continue
            _arrow(canvas, at[state], at[after], side=side, ink=ink, dash=dash, label=f"{chance:g}")
    canvas.line((560, 220), (604, 220), ink=NOMINAL, width=2.4)
    canvas.text((614, 224), "walk", ink=NOMINAL, bold=True)
    canvas.line((560, 246), (604, 246), ink=ALTERNATIVE, width=2.4, dash="7 4")
    canvas.text((614, 250), "crawl", ink=ALTERNATIVE, bold=True)
    return canvas.document(300)


def abduction() -> str:
    """Draw what one observed step implies about an action not taken."""
    canvas = Canvas(
        WIDTH,
        "What an observed step says about another action",
        "Crawling falls with probability .05; knowing that walking did not fall, crawling would not have fallen.",
    )
    walk, crawl = WALKER.row(START, WALK), WALKER.row(START, CRAWL)
    after = counterfactual_row(walk, LEDGE, crawl)
    rows = (
        ("walk, as the model has it", walk, NOMINAL),
        ("crawl, as the model has it", crawl, ALTERNATIVE),
        ("crawl, had the same chance been at work: walking led to the ledge", (crawl[0], after), ALTERNATIVE),
    )
    y = 34.0
    for title, (states, chances), ink in rows:
        canvas.text((24, y), title, bold=True)
        for place in (START, LEDGE, FALLEN):
            found = chances[states == place]
            chance = float(found[0]) if len(found) else 0.0
            y += 22
            canvas.text((120, y), PLACES[place], anchor="end")
            canvas.box((130, y - 12), (480 * chance, 14), fill=ink)
            canvas.text((140 + 480 * chance, y), f"{chance:.3g}")
        y += 38
    return canvas.document(y - 14)


def path() -> str:
    """Draw observed path, intervention, offset and horizon."""
    canvas = Canvas(
        WIDTH,
        "The observed path and a world that leaves it",
        "Five steps were observed; the intervention sets in two steps before the last one and is judged from there on.",
    )
    x, y = [70.0 + 70 * n for n in range(10)], 80.0
    canvas.box((x[2] - 14, 24), (x[9] - x[2] + 28, 210), fill=AHEAD)
    canvas.text((x[9] + 10, 40), "the formula looks from here on", size=12, ink=FAINT, anchor="end")
    canvas.line((x[4], 30), (x[4], 238), ink=FAINT, dash="2 4")
    canvas.text((x[4] + 6, 228), "now: beyond it, nothing is known of the chance", size=12, ink=FAINT)
    canvas.polyline([(at, y) for at in x[:5]], ink=INK, width=2.4)
    canvas.polyline([(at, y) for at in x[4:]], ink=NOMINAL, width=2.4)
    for n in range(5):
        canvas.dot((x[n], y), 9, fill=PAPER, ink=INK, width=2)
        canvas.text((x[n], y - 18), f"@{4 - n}", size=12, anchor="middle", ink=FAINT)
    canvas.text((x[0] - 20, y + 34), "what happened", bold=True)
    canvas.text((x[5], y - 14), "nominal goes on", ink=NOMINAL, bold=True)
    for drop, width in ((40.0, 3.4), (75.0, 2.0), (110.0, 1.0)):
        points = [(x[2], y), *((at, y + drop * min(1.0, 0.5 * (k + 1))) for k, at in enumerate(x[3:]))]
        canvas.polyline(points, ink=ALTERNATIVE, width=width, dash="7 4")
    canvas.diamond((x[2], y), 7, fill=ALTERNATIVE)
    canvas.text((x[2] - 8, y + 62), "fallback@2", ink=ALTERNATIVE, bold=True, anchor="end")
    canvas.text((x[2] - 8, y + 80), "takes over here", ink=ALTERNATIVE, anchor="end")
    return canvas.document(250)


def regret() -> str:
    """Draw the outcomes of a regret formula as regions of two values."""
    canvas = Canvas(
        WIDTH,
        "What regret(fallback, P>=0.75 [...]) says",
        "Safe: nominal meets the bound. Regret: only the fallback does. Unavoidable: neither does.",
    )
    left, top, size, bound = 120.0, 20.0, 260.0, 0.75
    edge, level = left + size * bound, top + size * (1 - bound)
    canvas.area([(left, top), (edge, top), (edge, level), (left, level)], "hatch")
    canvas.area([(left, level), (edge, level), (edge, top + size), (left, top + size)], "dots")
    canvas.box((left, top), (size, size), ink=INK)
    canvas.line((edge, top), (edge, top + size), dash="3 3")
    canvas.line((left, level), (edge, level), dash="3 3")
    for n, name in ((0.0, "0"), (bound, "0.75"), (1.0, "1")):
        canvas.text((left + size * n, top + size + 18), name, size=12, anchor="middle")
        canvas.text((left - 8, top + size * (1 - n) + 4), name, size=12, anchor="end")
    canvas.text((left + size / 2, top + size + 38), "value as things are (nominal)", ink=NOMINAL, anchor="middle")
    canvas.text((left, top - 6), "value under the fallback", ink=ALTERNATIVE)
    for at, name in (((220.0, 58.0), "regret"), ((220.0, 190.0), "unavoidable"), ((348.0, 150.0), "safe")):
        canvas.text(at, name, bold=True, anchor="middle", halo=True)
    told = (
        ("regret", "nominal misses the bound, the fallback would have met it: fires"),
        ("unavoidable", "neither meets it: keeps a firing alarm, fires none by itself"),
        ("safe", "nominal meets it: only this counts towards resolving"),
        ("undecided", "samples did not suffice, or the question is too large"),
    )
    for n, (name, says) in enumerate(told):
        canvas.text((420, 60 + 62 * n), name, bold=True)
        canvas.paragraph((420, 78 + 62 * n), says, size=12, columns=56)
    return canvas.document(330)


def decisions() -> str:
    """Draw what other decisions would have given after a fall, with foresight and with hindsight."""
    canvas = Canvas(
        WIDTH,
        "Could the fall have been avoided?",
        "Walked to the ledge, walked on and fell: the chance of being home within three steps, by who decides.",
    )
    policies = {"nominal": np.array([WALK] * 4), "careful": np.array([CRAWL] * 4)}
    fell = [(START, WALK), (LEDGE, WALK), (FALLEN, WALK)]
    worlds = (
        ("nominal", "as it happened", INK),
        ("careful", "one given alternative: to crawl all the way", ALTERNATIVE),
        ("optimal", "the best policy; it knows nothing in advance", ALTERNATIVE),
        ("best[<=1]", "one changed decision, with hindsight", ALTERNATIVE),
        ("best", "every decision, with hindsight", ALTERNATIVE),
    )
    left, size, bound = 120.0, 560.0, 0.5
    canvas.line((left + size * bound, 30), (left + size * bound, 46 + 48 * len(worlds)), ink=FAINT, dash="3 3")
    canvas.text((left + size * bound, 22), "at least 0.5 required", size=12, anchor="middle", ink=FAINT)
    for n, (name, says, ink) in enumerate(worlds):
        text, y = f'{name}@2.P>={bound} [ F<=3 "home" ]', 52.0 + 48 * n
        value = check(text, model=WALKER, path=fell, policies=policies).quantities[0].value
        canvas.text((left - 12, y + 5), name, bold=True, anchor="end")
        canvas.box((left, y - 9), (size * value, 18), fill=ink)
        canvas.text((left + size * value + 10, y + 5), f"{value:.3g}", bold=True, halo=True)
        canvas.text((left, y + 24), says, size=12, ink=FAINT, halo=True)
    return canvas.document(40 + 48 * len(worlds) + 20)


def bounds() -> str:
    """Draw one number and two intervals for the same question."""
    canvas = Canvas(
        WIDTH,
        "One number, and what other causal models allow",
        "Where would crawling have led, given that walking led to the ledge? The Gumbel-Max answer and two intervals.",
    )
    walk, crawl = WALKER.row(START, WALK), WALKER.row(START, CRAWL)
    value = counterfactual_row(walk, LEDGE, crawl)
    every, stable = (row_bounds(walk, LEDGE, crawl, kind) for kind in ("any", "stable"))
    left, size, y = 250.0, 440.0, 60.0
    canvas.text((24, 26), "crawl instead, given that walking led to the ledge: the chance of", bold=True)
    for k, state in enumerate(crawl[0]):
        canvas.text((24, y + 4), PLACES[int(state)], bold=True)
        for row, (name, low, high) in enumerate(
            (("every causal model", every[0][k], every[1][k]), ("the stable ones", stable[0][k], stable[1][k]))
        ):
            at = y + 24 * row
            canvas.text((left - 14, at + 4), name, size=12, anchor="end", ink=FAINT)
            canvas.line((left, at), (left + size, at), ink=RULE)
            ends = left + size * float(low), left + size * float(high)
            canvas.box((ends[0], at - 6), (max(ends[1] - ends[0], 1.5), 12), fill="url(#band)", ink=ALTERNATIVE)
        canvas.diamond((left + size * float(value[k]), y + 12), 7, fill=ALTERNATIVE)
        canvas.text((left + size * float(value[k]) + 12, y + 16), f"{value[k]:.3g}", bold=True, halo=True)
        y += 70
    for n in np.linspace(0, 1, 5):
        canvas.text((left + size * float(n), y - 12), f"{n:g}", size=12, anchor="middle", ink=FAINT)
    return canvas.document(y + 6)


def blindness() -> str:
    """Draw an alarm while its formula is blind: it keeps its state and reports the blindness."""
    canvas = Canvas(
        WIDTH,
        "An alarm through a blind stretch",
        "Verdicts, alarm and blindness over eighteen steps; a lost step blinds until the path is long enough.",
    )
    verdicts = "ssbbb" + "?????" + "bbsssss" + "s"
    x, wide = 110.0, 34.0
    for name, y in (("verdict", 44.0), ("alarm", 104.0), ("blind", 164.0)):
        canvas.text((24, y + 4), name, bold=True)
    for n, each in enumerate(verdicts):
        at = x + wide * n + wide / 2
        if each == "b":
            canvas.box((at - 8, 36), (16, 16), fill=NOMINAL)
        elif each == "s":
            canvas.dot((at, 44), 8, fill=PAPER, ink=ALTERNATIVE, width=2)
        else:
            canvas.text((at, 49), "?", bold=True, anchor="middle")
    stretches = (
        (0, 2, "none", "clear"),
        (2, 3, "url(#dots)", ""),
        (3, 13, NOMINAL, "firing"),
        (13, 18, "none", "resolved"),
    )
    for begin, end, fill, name in stretches:
        canvas.box((x + wide * begin, 92), (wide * (end - begin), 24), fill=fill, ink=INK)
        ink = PAPER if fill == NOMINAL else INK
        canvas.text((x + wide * (begin + end) / 2, 109), name, size=12, ink=ink, anchor="middle", bold=True)
    canvas.box((x + wide * 5, 152), (wide * 5, 24), fill="url(#hatch)", ink=INK)
    canvas.text((x + wide * 7.5, 169), "gap", bold=True, anchor="middle", halo=True)
    canvas.text(
        (24, 210),
        "square: missed · circle: safe · ?: no answer · alarm: {for: 2, keep: 2}; dotted: pending",
        size=12,
        ink=FAINT,
    )
    return canvas.document(226)


def _arrow(
    canvas: Canvas, a: tuple[float, float], b: tuple[float, float], *, side: float, ink: str, dash: str, label: str
) -> None:
    """Draw an arrow between circles, slightly to one side, with its probability beside it."""
    start, end = np.array(a), np.array(b)
    along = (end - start) / np.linalg.norm(end - start)
    across = np.array([-along[1], along[0]])
    tail, tip = start + 40 * along + side * across, end - 44 * along + side * across
    canvas.line((tail[0], tail[1]), (tip[0], tip[1]), ink=ink, width=2.0, dash=dash)
    wings = [tip - 9 * along + 5 * across, tip, tip - 9 * along - 5 * across]
    canvas.polyline([(w[0], w[1]) for w in wings], ink=ink, width=2.0)
    middle = (tail + tip) / 2 + (1.6 * side) * across
    canvas.text((middle[0], middle[1] + 4), label, size=12, ink=ink, bold=True, anchor="middle", halo=True)


DRAWINGS: Final[dict[str, Callable[[], str]]] = {
    "model": model,
    "abduction": abduction,
    "path": path,
    "regret": regret,
    "decisions": decisions,
    "bounds": bounds,
    "blindness": blindness,
}
"""Name of the file -> function that draws it."""
