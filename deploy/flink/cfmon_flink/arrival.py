"""Lines of the log: a step of an agent as the bridge received it, in JSON."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Final

import msgspec

from monitor.errors import InputError
from monitor.stream.decode import agent_of

__all__ = ["LATEST", "NOBODY", "Arrival", "read_line", "read_lines", "received_on", "tick_line", "write_line"]

NOBODY: Final = ""
"""Agent of lines that name no valid agent."""

LATEST: Final = 253_402_300_800_000
"""The year 10000 in milliseconds since the epoch. Java's timers and floats cannot hold every number of JSON."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, lt=LATEST)]

_MALFORMED = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
"""Exceptions of msgspec for a malformed line; RecursionError is for deeply nested lists."""


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log.

    `received`: when the bridge received it, in milliseconds since the epoch; this is the job's only clock. `payload`:
    the MQTT payload, in base64 on the line; None: only time has passed.
    """

    agent: str
    received: Milliseconds
    payload: bytes | None = None


class _Time(msgspec.Struct, frozen=True):
    """The part of a line that says when it was received."""

    received: Milliseconds


_arrival = msgspec.json.Decoder(Arrival).decode
_arrivals = msgspec.json.Decoder(Arrival).decode_lines
_time = msgspec.json.Decoder(_Time).decode
_line = msgspec.json.Encoder().encode


def read_line(line: str, known: Container[str] = ()) -> Arrival:
    """Return the arrival on a line. Raise InputError (`bad_line`, or `bad_agent` for a name that no agent may have).

    The names of `known` agents are not checked again.

    >>> read_line('{"agent": "ada", "received": 1795259763700, "payload": "e30="}').payload
    b'{}'
    """
    try:
        arrival = _arrival(line)
    except _MALFORMED as error:
        raise InputError("bad_line", f"not a line of the bridge ({error}); see deploy/flink/telegraf.conf") from error
    if arrival.agent not in known:
        agent_of(arrival.agent, "+")
    return arrival


def read_lines(lines: str, separator: str) -> list[Arrival] | None:
    """Return the arrivals on lines; None if the lines must be read one by one. Names of agents are not checked.

    If there are as many JSON values as lines, each line is one value, because a new line between } and { is between
    two values. (Telegraf ends each value with its own new line.)

    >>> read_lines('{"agent": "a", "received": 1};{"agent": "b", "received": 2}', ";")
    [Arrival(agent='a', received=1, payload=None), Arrival(agent='b', received=2, payload=None)]
    >>> read_lines('{"agent": "a", "received": 1};', ";")
    """
    ends = lines.count(separator)
    plain = lines.replace(f"\n{separator}", separator)
    if plain.count(f"}}{separator}{{") < ends or plain[:1] != "{":
        return None
    try:
        found = _arrivals(plain.replace(separator, "\n"))
    except _MALFORMED:
        return None
    return found if len(found) == ends + 1 else None


def received_on(line: str, otherwise: int) -> int:
    """Return when a line was received, in milliseconds since the epoch; `otherwise` if the line has no time."""
    try:
        return _time(line).received
    except _MALFORMED:
        return otherwise


def write_line(agent: str, received: int, payload: bytes) -> str:
    """Return the line of a payload that was received at `received`, in milliseconds since the epoch."""
    return _line(Arrival(agent, received, payload)).decode()


def tick_line(agent: str, received: int) -> str:
    """Return the line that records that time has passed for an agent."""
    return _line(Arrival(agent, received)).decode()
