"""The picture of an alarm: an explanation computed again from the evidence, as SVG. Pure: no file, no clock."""

from monitor.picture.alarm_picture import draw_alarm
from monitor.picture.draw import draw
from monitor.picture.explanation import Explanation, explain

__all__ = ["Explanation", "draw", "draw_alarm", "explain"]
