"""The picture of an alarm: an explanation derived again from the evidence, drawn as SVG. Pure: no file, no clock."""

from monitor.picture.alarm_picture import draw_alarm
from monitor.picture.draw import draw
from monitor.picture.explanation import Explanation, explain

__all__ = ["Explanation", "draw", "draw_alarm", "explain"]
