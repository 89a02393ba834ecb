"""Meanings of the names of columns: words for times, subjects, commands, outcomes and so on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from monitor.authoring.learning.columns import EPISODE

UNITS: Final = {"s", "ms", "us", "ns", "sec", "secs", "seconds", "utc", "local", "iso", "start"}
TIMES: Final = {"time", "timestamp", "datetime", "date", "ts", "clock", "epoch", "unixtime", "unix", "stamp", "at"}
CALENDAR: Final = {"hour", "minute", "weekday", "dow", "dayofweek", "month", "season", "holiday", "weekend", "day"}
OUTSIDE: Final = {"weather", "rain", "rainfall", "wind", "sun", "sunshine", "solar", "irradiance", "cloud", "clouds",
                  "outdoor", "outside", "ambient", "price", "tariff"}  # fmt: skip
IDS: Final = {"id", "uuid", "guid", "uid", "key", "hash", "serial", "pk"}
SUBJECTS: Final = {"patient", "subject", "session", "game", "match", "trial", "flight", "trip", "mission", "stay",
                   "admission", "encounter", "user", "vehicle", "robot", "device", "host", "service", "pod", "instance",
                   "machine", "house", "home", "building", "symbol", "ticker", *EPISODE}  # fmt: skip
COMMANDS: Final = {"command", "cmd", "decision", "control", "treatment", "choice", "move", "setpoint", "dose"}
OUTCOMES: Final = {"outcome", "result", "final", "total", "label", "target", "survived", "died", "mortality", "length",
                   "winner", "success", "return", "returns"}  # fmt: skip
RESULTS: Final = {"outcome", "outcomes", "result", "results"}
RETURNS: Final = {"rtg", "return_to_go", "returns_to_go", "return", "returns", "advantage", "td_target",
                  "value_target", "episode_return", "cumulative_return"}  # fmt: skip
ENDS: Final = {"dead", "death", "died", "crash", "crashed", "failed", "failure", "collision", "collided", "gameover",
               "over", "end", "ended", "last", "final", "finished", "success", "stopped"}  # fmt: skip
CUTS: Final = {"time", "timeout", "limit", "truncated", "truncation", "cut", "max", "aborted", "abort", "interrupted",
               "cancelled", "canceled", "shutdown", "restart", "unknown"}  # fmt: skip
NOTES: Final = {"note", "notes", "comment", "comments", "message", "msg", "description", "log", "remark", "remarks",
                "text", "reason"}  # fmt: skip
COSTS: Final = {"cost", "pnl", "profit", "loss", "payoff"}
DELAYED: Final = {"prev", "previous", "last", "lag", "lagged", "old", "before"}


@lru_cache(maxsize=1024)
def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case.

    >>> words_of("outdoorTemp_c[0]")
    ['outdoor', 'temp', 'c', '0']
    """
    return re.findall(r"[a-z]+|\d+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower())


def is_time(name: str) -> bool:
    """Return whether a name is a name for times, such as `created_at` or `time_utc`."""
    said = [word for word in words_of(name) if word not in UNITS]
    return bool(said) and said[-1] in TIMES and (said[-1] != "at" or len(said) > 1)


def is_calendar(name: str) -> bool:
    """Return whether a name is a name for a part of the calendar, such as `weekday` or `hour_of_day`."""
    said = words_of(name)
    return bool(said) and (said[-1] in CALENDAR or (said[0] in CALENDAR | TIMES and "of" in said))
