"""The picture of an alarm: its story derived again from the evidence, and drawn as SVG. Pure: no file, no clock."""

from monitor.picture.draw import draw
from monitor.picture.explanation import Explanation, tell

__all__ = ["Explanation", "draw", "tell"]
