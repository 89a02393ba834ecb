"""A small writer of SVG. Shapes are in the order of drawing, every text is escaped, and every number is short.

Elements that differ in colour also differ in line or pattern, for print in black and white and for colour-blind
readers. The colours are from Okabe & Ito, "Color Universal Design" (2008).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal
from xml.sax.saxutils import escape, quoteattr

INK: Final = "#16191d"
FAINT: Final = "#545b64"
NOMINAL: Final = "#a63c00"
ALTERNATIVE: Final = "#00508a"
FIRING: Final = "#a8071a"
PAPER: Final = "#ffffff"
RULE: Final = "#d3d7dd"
"""The colours of the style sheet of the status page.

`RULE` is only for lines that guide the eye; the other colours have a contrast of at least 4.5 to 1.
"""
AHEAD: Final = "#f1f2f4"
"""Background of the steps after the alarm."""

DARK: Final = {
    PAPER: "#191d22",
    INK: "#e9ebee",
    FAINT: "#a6aeb8",
    NOMINAL: "#ff9a5c",
    ALTERNATIVE: "#6cb8f0",
    FIRING: "#ff9a94",
    RULE: "#363d46",
    AHEAD: "#22272d",
}
"""Colour -> the colour that replaces it in dark mode.

The replacement is as legible in dark mode as the colour is on white.
"""

BREAKS: Final = "\t\n"
"""Control characters that are allowed in text. Others are invalid in XML, or control a terminal that shows them."""

Ink = str
Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
Pattern = Literal["hatch", "dots", "cross", "blind"]

STYLE: Final = """
text { font-family: system-ui, "Noto Sans", "DejaVu Sans", Roboto, sans-serif; }
.step { outline: none; cursor: crosshair; }
.step:hover > rect, .step:focus > rect { fill-opacity: .1; }
.step .numbers { pointer-events: none; }
.step:hover .numbers, .step:focus .numbers { visibility: visible; }
svg:has(.step:hover) .step:not(:hover) .numbers { visibility: hidden; }
"""
"""Style sheet. The numbers of a step are hidden unless the step is pointed at."""
PATTERNS: Final = f"""
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="{PAPER}"/><line x1="0" y1="0" x2="0" y2="6" stroke="{FAINT}" stroke-width="2.4"/>
</pattern>
<pattern id="dots" width="7" height="7" patternUnits="userSpaceOnUse">
<rect width="7" height="7" fill="{PAPER}"/><circle cx="3.5" cy="3.5" r="1.4" fill="{INK}"/></pattern>
<pattern id="cross" width="8" height="8" patternUnits="userSpaceOnUse">
<rect width="8" height="8" fill="{PAPER}"/><path d="M0 0L8 8M8 0L0 8" stroke="{FAINT}" stroke-width="1"/></pattern>
<pattern id="blind" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<line x1="0" y1="0" x2="0" y2="8" stroke="{FAINT}" stroke-opacity="0.5" stroke-width="1.2"/></pattern>
"""


EDGE: Final = 16.0
"""Width, in pixels, of the margins without text at the left and right of a picture."""
MEAN: Final = 0.56
WIDE: Final = 0.64
"""Largest width of a character in long texts, of normal and bold type, relative to the type size, in wide fonts."""


def shortened(text: str, room: float, *, size: float, bold: bool = False) -> str:
    """Return a text that is at most `room` pixels wide in wide fonts. The middle of a longer text is left out."""
    most = max(int(room / (WIDE if bold else MEAN) / size), 3)
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper bound of a text's width in wide fonts, in pixels."""
    return len(text) * size * (WIDE if bold else MEAN)


class Canvas:
    """An SVG document of `width` pixels.

    Its height is given at the end. Screen readers read `title` and `description`.
    """

    def __init__(self, width: float, title: str, description: str) -> None:
        self.width = width
        self._title, self._description = _writable(title), _writable(description)
        self._parts: list[str] = []
        self._readings: list[tuple[Point, Point, Sequence[str], Point]] = []

    @property
    def drawn(self) -> int:
        """Number of shapes so far. It is a position in the order in which shapes cover one another."""
        return len(self._parts)

    @contextmanager
    def under(self, place: int) -> Iterator[None]:
        """Insert the shapes of the block below all shapes that were drawn after `place`."""
        above = self._parts[place:]
        del self._parts[place:]
        yield
        self._parts += above

    def line(self, a: Point, b: Point, *, ink: Ink = INK, width: float = 1.0, dash: str = "") -> None:
        """Add a straight line."""
        self._parts.append(
            f'<line x1="{_n(a[0])}" y1="{_n(a[1])}" x2="{_n(b[0])}" y2="{_n(b[1])}"{_stroke(ink, width, dash)}/>'
        )

    def polyline(
        self, points: Sequence[Point], *, ink: Ink = INK, width: float = 1.0, dash: str = "", opacity: float = 1.0
    ) -> None:
        """Add a line through points."""
        where = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        faded = "" if opacity == 1.0 else f' stroke-opacity="{_n(opacity)}"'
        self._parts.append(
            f'<polyline points="{where}" fill="none" stroke-linejoin="round"{_stroke(ink, width, dash)}{faded}/>'
        )

    def area(self, points: Sequence[Point], pattern: Pattern) -> None:
        """Add a filled polygon."""
        self._polygon(points, f' fill="url(#{pattern})"')

    def tint(self, points: Sequence[Point], ink: Ink, opacity: float) -> None:
        """Add a filled polygon through which lower shapes are visible."""
        self._polygon(points, f' fill="{ink}" fill-opacity="{_n(opacity)}"')

    def box(
        self, at: Point, size: Point, *, fill: str = "none", ink: Ink = "none", width: float = 1.0, says: str = ""
    ) -> None:
        """Add a rectangle. `says`: its tooltip, which screen readers read."""
        title = f"<title>{escape(_writable(says))}</title>" if says else ""
        self._parts.append(
            f'<rect x="{_n(at[0])}" y="{_n(at[1])}" width="{_n(size[0])}" height="{_n(size[1])}" fill="{fill}"'
            f"{_stroke(ink, width)}>{title}</rect>"
        )

    def dot(
        self,
        at: Point,
        radius: float,
        *,
        fill: str = INK,
        ink: Ink = "none",
        width: float = 1.0,
        dash: str = "",
        says: str = "",
    ) -> None:
        """Add a circle."""
        title = f"<title>{escape(_writable(says))}</title>" if says else ""
        self._parts.append(
            f'<circle cx="{_n(at[0])}" cy="{_n(at[1])}" r="{_n(radius)}" fill="{fill}"{_stroke(ink, width, dash)}>'
            f"{title}</circle>"
        )

    def diamond(self, at: Point, radius: float, *, fill: str = INK) -> None:
        """Add a square on its corner, the mark of the alternative. The mark of the nominal policy is a circle."""
        x, y = at
        self._polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], f' fill="{fill}"')

    def triangle(self, at: Point, radius: float, *, fill: str = PAPER, ink: Ink = INK) -> None:
        """Add a triangle, the mark of a single other action."""
        x, y = at
        corners = [(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)]
        self._polygon(corners, f' fill="{fill}"{_stroke(ink, 1.4)}')

    def _polygon(self, points: Sequence[Point], how: str) -> None:
        where = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polygon points="{where}"{how}/>')

    def text(
        self,
        at: Point,
        content: str,
        *,
        size: float = 13,
        ink: Ink = INK,
        bold: bool = False,
        anchor: Anchor = "start",
        halo: bool = False,
        room: float = math.inf,
        turned: bool = False,
    ) -> None:
        """Add one line of text.

        The baseline begins at `at`. `halo`: keep the text legible over lines. `turned`: write it upwards. If a text is
        wider than `room` pixels or would cross the edge, its middle is left out, and the whole text is its tooltip.
        """
        left, right = at[0] - EDGE, self.width - EDGE - at[0]
        if not turned:
            room = min(room, {"start": right, "end": left, "middle": 2 * min(left, right)}[anchor])
        shown = shortened(content, room, size=size, bold=bold)
        title = "" if shown == content else f"<title>{escape(_writable(content))}</title>"
        weight = ' font-weight="bold"' if bold else ""
        weight += f' paint-order="stroke" stroke="{PAPER}" stroke-width="4"' if halo else ""
        weight += f' transform="rotate(-90 {_n(at[0])} {_n(at[1])})"' if turned else ""
        self._parts.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" text-anchor="{anchor}"{weight} '
            f'font-size="{_n(size)}" fill="{ink}">{escape(_writable(shown))}{title}</text>'
        )

    def paragraph(
        self,
        at: Point,
        content: str,
        *,
        size: float = 14,
        columns: int = 0,
        ink: Ink = INK,
        bold: bool = False,
        halo: bool = False,
    ) -> float:
        """Add lines of at most `columns` characters (0: up to the right edge), with the options of `text`.

        Returns:
            The height of the lines in pixels.
        """
        most = int((self.width - EDGE - at[0]) / (WIDE if bold else MEAN) / size)
        lines = textwrap.wrap(content, columns or most) or [""]
        for n, line in enumerate(lines):
            self.text((at[0], at[1] + n * size * 1.4), line, size=size, ink=ink, bold=bold, halo=halo)
        return len(lines) * size * 1.4

    def reading(self, at: Point, size: Point, lines: Sequence[str], below: Point) -> None:
        """Add an area that can be pointed at, or reached with the keyboard.

        While the area is active, its numbers, `lines`, appear at `below`.
        """
        self._readings.append((at, size, lines, below))

    def _draw_readings(self, height: float) -> None:
        for at, size, lines, below in self._readings:
            wide, high = max(width_of(line, 12, bold=True) for line in lines) + 20, 17.0 * len(lines) + 10
            left = max(min(at[0] + size[0] / 2 - wide / 2, self.width - below[0] - wide), below[0])
            top = max(min(below[1], height - high - 4), 0.0)
            said = quoteattr(_writable(". ".join(lines)))
            self._parts.append(f'<g class="step" tabindex="0" role="img" aria-label={said}>')
            self._parts.append(
                f'<rect x="{_n(at[0])}" y="{_n(at[1])}" width="{_n(size[0])}" height="{_n(size[1])}" fill="{INK}" '
                'fill-opacity="0"/><g class="numbers" visibility="hidden">'
            )
            self.box((left, top), (wide, high), fill=PAPER, ink=FAINT)
            for n, line in enumerate(lines):
                self.text((left + 10, top + 17 * (n + 1)), line, size=12, bold=n == 0)
            self._parts.append("</g></g>")

    def document(self, height: float) -> str:
        """Return the SVG document."""
        self._draw_readings(height)
        role = "graphics-document" if self._readings else "img"  # an image has no focusable parts
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} {_n(height)}"',
                f'width="{_n(self.width)}" height="{_n(height)}" role="{role}"',
                f"aria-label={quoteattr(self._title)}>",
                f"<title>{escape(self._title)}</title>",
                f"<desc>{escape(self._description)}</desc>",
                f"<style>{STYLE}{_in_the_dark()}</style><defs>{PATTERNS}</defs>",
                f'<rect width="100%" height="100%" fill="{PAPER}"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _in_the_dark() -> str:
    """Return the dark colours as CSS, which overrides the colour attributes. Other renderers ignore it."""
    rules = [f'[{what}="{light}"] {{ {what}: {dark}; }}' for light, dark in DARK.items() for what in ("fill", "stroke")]
    return "@media screen and (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}\n"


def _writable(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter in BREAKS else "\ufffd" for letter in text)


def _stroke(ink: Ink, width: float, dash: str = "") -> str:
    if ink == "none":
        return ""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f' stroke="{ink}" stroke-width="{_n(width)}"{dashed}'


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
