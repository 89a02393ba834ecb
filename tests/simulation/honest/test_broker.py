"""The simulated broker says what mosquitto says, in one of the two ways of its versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.honest.brokers import Client, Conversation, Place, Real, Simulated, transcript
from tests.tiers import slow

Connect = Callable[..., Client]


def keeps_a_session(connect: Connect, _place: Place) -> list[object]:
    """What is published while a client is away waits; what it does not acknowledge comes again, first, with DUP."""
    other, client = connect("other"), connect("client")
    heard: list[object] = [client.greeting, client.subscribe("a/+")]
    client.leave()
    for n in range(4):
        other.publish("a/b", b"%d" % n)
    client = connect("client")
    heard += [client.greeting, client.heard(), client.acknowledge(2)]
    client.cut()
    other.publish("a/b", b"later")
    client = connect("client")
    return [*heard, client.greeting, client.heard(), client.acknowledge(9)]


def forgets_a_clean_session(connect: Connect, _place: Place) -> list[object]:
    """A clean session ends with its connection, and a clean connection ends a session that was kept."""
    other, client = connect("other"), connect("client", clean=True)
    client.subscribe("a/+")
    client.cut()
    other.publish("a/b", b"lost")
    kept = connect("client")
    heard: list[object] = [kept.greeting, kept.subscribe("a/+")]
    kept.leave()
    other.publish("a/b", b"lost too")
    return [*heard, connect("client", clean=True).greeting, connect("client").greeting]


def limits_what_is_in_flight(connect: Connect, _place: Place) -> list[object]:
    """A client gets so many messages at once, and others when it acknowledges one."""
    other, client = connect("other"), connect("client")
    client.subscribe("a/+")
    for n in range(6):
        other.publish("a/b", b"%d" % n)
    return [client.heard(), client.acknowledge(1), client.acknowledge(1), client.acknowledge(9)]


def retains(connect: Connect, _place: Place) -> list[object]:
    """A subscriber gets the last retained message of each topic, marked so; a live one is not marked."""
    other, client = connect("other"), connect("client")
    other.publish("a/b", b"old", retain=True)
    other.publish("a/b", b"new", retain=True)
    heard: list[object] = [client.subscribe("a/+"), client.acknowledge(9)]
    other.publish("a/b", b"live", retain=True)
    heard += [client.heard(), client.acknowledge(9), client.subscribe("a/+"), client.acknowledge(9)]
    other.publish("a/b", b"", retain=True)
    return [*heard, client.heard(), client.acknowledge(9), connect("third").subscribe("a/+")]


def sends_wills(connect: Connect, _place: Place) -> list[object]:
    """A will is sent unless its client leaves in order; also if another takes its session over."""
    watcher = connect("watcher")
    heard: list[object] = [watcher.subscribe("wills")]
    connect("client", will=b"left").leave()
    heard += [watcher.heard()]
    connect("client", will=b"cut").cut()
    connect("another")  # the broker has seen the end by then
    heard += [watcher.heard()]
    first = connect("client", will=b"taken over")
    second = connect("client")
    return [*heard, first.end(), second.greeting, watcher.heard()]


def gives_up_the_silent(connect: Connect, _place: Place) -> list[object]:
    """A client that says nothing for one and a half times its keepalive is given up, and its will is sent."""
    watcher, client = connect("watcher"), connect("client", will=b"silent", keepalive=1)
    return [watcher.subscribe("wills"), client.end(), watcher.heard()]


def saves_at_its_end(connect: Connect, place: Place) -> list[object]:
    """After an end in order everything is there: what is retained, what waits, and what was in flight, with DUP."""
    return _restarted(connect, place, crash=False)


def loses_in_a_crash(connect: Connect, place: Place) -> list[object]:
    """After a crash only what was saved is there."""
    return _restarted(connect, place, crash=True)


def _restarted(connect: Connect, place: Place, *, crash: bool) -> list[object]:
    other, client = connect("other"), connect("client")
    client.subscribe("a/+")
    other.publish("a/b", b"in flight", retain=True)
    heard: list[object] = [client.heard()]
    client.cut()
    other.publish("a/b", b"waits")
    place.restart(crash=crash)
    client = connect("client")
    return [*heard, client.greeting, client.heard(), client.acknowledge(9), connect("third").subscribe("a/+")]


@slow
@pytest.mark.parametrize(
    "conversation",
    [
        keeps_a_session,
        forgets_a_clean_session,
        limits_what_is_in_flight,
        retains,
        sends_wills,
        gives_up_the_silent,
        saves_at_its_end,
        loses_in_a_crash,
    ],
    ids=lambda each: each.__name__,
)
def test_both_brokers_say_the_same(conversation: Conversation, tmp_path: Path) -> None:
    simulated = [transcript(Simulated(inflight=3, exceeds=exceeds), conversation) for exceeds in (False, True)]
    real = Real(tmp_path, inflight=3)
    try:
        assert transcript(real, conversation) in simulated
    finally:
        real.close()
