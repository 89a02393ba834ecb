"""The faults of the world: each is a function of the scene, which does its harm and has it end by itself.

A new one is a function with `@fault` before it; the swarm draws it from then on, and counts it by its name. What it
does ends within `LONGEST` seconds. Whatever it is, the invariants must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from tests.simulation import packets
from tests.simulation.agents import ConnectedAgent
from tests.simulation.broker import PORT
from tests.simulation.network import End
from tests.simulation.scene import Scene
from tests.simulation.sidecar import NAME

LONGEST: Final = 12.0
"""Seconds that a fault lasts, at most."""

Fault = Callable[[Scene], bool | None]
"""Does its harm; returns False if it found nothing to harm."""

FAULTS: Final[dict[str, Fault]] = {}


def fault(harm: Fault) -> Fault:
    """Register a kind of fault."""

    @wraps(harm)
    def counted(scene: Scene) -> bool:
        scene.world.note(f"fault {harm.__name__}")
        happened = harm(scene) is not False
        scene.world.faults[harm.__name__] += happened
        return happened

    FAULTS[harm.__name__] = counted
    return counted


def _seconds(scene: Scene, least: float = 0.05, most: float = LONGEST) -> float:
    """Draw a duration; short ones are as likely as long ones."""
    return float(least * (most / least) ** scene.world.draw.random())


def _any_end(scene: Scene, *, of_sidecar: bool) -> End | None:
    ends = [end for end in scene.network.ends if not end.name.startswith("to ") and (end.name == NAME) == of_sidecar]
    return scene.world.draw.choice(ends) if ends else None


# ---- between sidecar and broker ----


@fault
def connection_lost(scene: Scene) -> bool:
    """The sidecar's connection is reset; what was on its way is lost."""
    end = _any_end(scene, of_sidecar=True)
    if end is not None:
        end.cut()
    return end is not None


@fault
def connection_half_open(scene: Scene) -> bool:
    """Nothing passes on the sidecar's connection any more, and nobody is told."""
    end = _any_end(scene, of_sidecar=True)
    if end is not None:
        end.mute()
    return end is not None


@fault
def connections_refused(scene: Scene) -> None:
    """The sidecar loses its connection and gets no other for a while."""
    connection_lost(scene)
    scene.network.refusing.add(NAME)
    scene.world.after(_seconds(scene), lambda: scene.network.refusing.discard(NAME))


@fault
def network_slow(scene: Scene) -> None:
    """Each packet may take a second longer, everywhere."""
    scene.network.slow = scene.world.draw.uniform(0.01, 1.0)
    scene.world.after(_seconds(scene), scene.network.be_quick)


@fault
def broker_does_not_read(scene: Scene) -> bool:
    """The broker reads nothing from the sidecar for a while; what it sends goes on."""
    end = _any_end(scene, of_sidecar=True)
    if end is None:
        return False
    end.peer.pause()
    scene.world.after(_seconds(scene), end.peer.resume)
    return True


@fault
def session_stolen(scene: Scene) -> bool:
    """Another client connects under the sidecar's id, takes what waits, and leaves without acknowledging any of it."""
    if not scene.broker.up:
        return False
    end = scene.network.connect("thief", PORT)
    end.write(packets.connect(NAME, clean=False, keepalive=60))
    scene.world.after(_seconds(scene, most=1.0), end.reset)
    return True


# ---- the broker ----


@fault
def broker_forgets_connections(scene: Scene) -> bool:
    """The broker resets every connection at once, and goes on."""
    ends = [end for end in scene.network.ends if end.name.startswith("to ")]
    for end in ends:
        end.cut()
    return bool(ends)


@fault
def broker_restarts(scene: Scene) -> None:
    """The broker ends in order, and comes again with everything that it had."""
    _restart(scene, crash=False)


@fault
def broker_crashes(scene: Scene) -> None:
    """The broker is killed, and comes again with what it had saved."""
    _restart(scene, crash=True)


def _restart(scene: Scene, *, crash: bool) -> None:
    if scene.broker.up:
        scene.broker.stop(crash=crash)
        scene.world.after(_seconds(scene), scene.broker.start)


# ---- agents ----


@fault
def agent_loses_connection(scene: Scene) -> bool:
    """An agent's connection is reset; it sends again what was not acknowledged."""
    end = _any_end(scene, of_sidecar=False)
    if end is not None:
        end.cut()
    return end is not None


@fault
def agent_half_open(scene: Scene) -> bool:
    """Nothing passes between an agent and the broker any more; its steps wait meanwhile."""
    end = _any_end(scene, of_sidecar=False)
    if end is not None:
        end.mute()
    return end is not None


@fault
def agent_repeats_itself(scene: Scene) -> None:
    """An agent sends the steps of its last seconds again."""
    agent = scene.world.draw.choice(scene.agents)
    agent.say_again(scene.world.now)


@fault
def agents_hold_back(scene: Scene) -> bool:
    """Connected agents cannot reach the broker for a while; all their steps come at once then."""
    agents = [agent.name for agent in scene.agents if isinstance(agent, ConnectedAgent)]
    for name in agents:
        scene.network.refusing.add(name)
        for end in scene.network.of(name):
            end.cut()
    scene.world.after(_seconds(scene), lambda: scene.network.refusing.difference_update(agents))
    return bool(agents)


# ---- the process ----


@fault
def killed(scene: Scene) -> bool:
    """`kill -9` at any moment between two callbacks."""
    return scene.kill(_seconds(scene))


@fault
def killed_before_commit(scene: Scene) -> bool:
    """`kill -9` just before a transaction is committed."""
    return scene.kill_at_commit(_seconds(scene), before=True)


@fault
def killed_after_commit(scene: Scene) -> bool:
    """`kill -9` just after a transaction was committed: nothing was acknowledged or sent yet."""
    return scene.kill_at_commit(_seconds(scene), before=False)


@fault
def restarted(scene: Scene) -> bool:
    """The sidecar ends in order, and is started again."""
    return scene.restart(_seconds(scene))


@fault
def suspended(scene: Scene) -> None:
    """The process gets no processor for a while (SIGSTOP, a suspended machine)."""
    scene.sidecar.sleep(_seconds(scene))


@fault
def clock_set(scene: Scene) -> None:
    """The wall clock jumps, forward or back, by up to ten minutes."""
    scene.world.wall_ahead = scene.world.draw.uniform(-600.0, 600.0)


# ---- receivers ----


def _moody(mood: str, words: str) -> Fault:
    def harm(scene: Scene) -> bool:
        receivers = list(scene.receivers.all.values())
        if receivers:
            receiver = scene.world.draw.choice(receivers)
            receiver.mood = mood
            scene.world.after(_seconds(scene), receiver.calm)
        return bool(receivers)

    harm.__name__, harm.__doc__ = f"receiver_{mood}", words
    return fault(harm)


_moody("away", "A receiver refuses connections.")
_moody("busy", "A receiver answers 503, and when to come again.")
_moody("fails", "A receiver answers 500.")
_moody("limits", "A receiver answers 429.")
_moody("slow", "A receiver takes posts and answers too late.")
_moody("cuts", "A receiver cuts connections, with or without having taken the post.")
