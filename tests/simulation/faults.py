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
from tests.simulation.sidecar import NAME, Moment

LONGEST: Final = 12.0
"""Seconds that a fault lasts, at most."""

Fault = Callable[[Scene], bool]
"""Does its harm; returns whether it found anything to harm."""

FAULTS: Final[dict[str, Fault]] = {}


def fault(harm: Fault) -> Fault:
    """Register a kind of fault."""

    @wraps(harm)
    def counted(scene: Scene) -> bool:
        scene.world.note(f"fault {harm.__name__}")
        happened = harm(scene)
        scene.world.faults[harm.__name__] += happened
        return happened

    FAULTS[harm.__name__] = counted
    return counted


def _seconds(scene: Scene, least: float = 0.05, most: float = LONGEST) -> float:
    """Draw a duration; short ones are as likely as long ones."""
    return float(least * (most / least) ** scene.world.draw.random())


def connection_fault(of: str) -> Callable[[Callable[[Scene, End], None]], Fault]:
    """Register a kind of fault of one connection to the broker, of which it gets the client's end.

    `of`: with what the client's name begins: `sidecar`, `a` (an agent) or `guard`.
    """

    def register(harm: Callable[[Scene, End], None]) -> Fault:
        @fault
        @wraps(harm)
        def harm_one(scene: Scene) -> bool:
            ends = [end for end in scene.network.ends if end.name.startswith(of)]
            if ends:
                harm(scene, scene.world.draw.choice(ends))
            return bool(ends)

        return harm_one

    return register


def _keep_away(scene: Scene, names: list[str]) -> bool:
    """Have these lose their connections, and get no others for a while."""
    scene.network.refusing.update(names)
    for name in names:
        for end in scene.network.of(name):
            end.cut()
    scene.world.after(_seconds(scene), lambda: scene.network.refusing.difference_update(names))
    return bool(names)


# ---- between sidecar and broker ----


@connection_fault(NAME)
def connection_lost(_scene: Scene, end: End) -> None:
    """The sidecar's connection is reset; what was on its way is lost."""
    end.cut()


@connection_fault(NAME)
def connection_half_open(_scene: Scene, end: End) -> None:
    """Nothing passes on the sidecar's connection any more, and nobody is told."""
    end.mute()


@connection_fault(NAME)
def broker_does_not_read(scene: Scene, end: End) -> None:
    """The broker reads nothing from the sidecar for a while; what it sends goes on."""
    end.peer.pause()
    scene.world.after(_seconds(scene), end.peer.resume)


@fault
def connections_refused(scene: Scene) -> bool:
    """The sidecar loses its connection and gets no other for a while."""
    return _keep_away(scene, [NAME])


@fault
def network_slow(scene: Scene) -> bool:
    """Each packet may take a second longer, everywhere."""
    scene.network.slow = scene.world.draw.uniform(0.01, 1.0)
    scene.world.after(_seconds(scene), scene.network.be_quick)
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
def broker_restarts(scene: Scene) -> bool:
    """The broker ends in order, and comes again with everything that it had."""
    return _restart(scene, crash=False)


@fault
def broker_crashes(scene: Scene) -> bool:
    """The broker is killed, and comes again with what it had saved."""
    return _restart(scene, crash=True)


def _restart(scene: Scene, *, crash: bool) -> bool:
    if not scene.broker.up:
        return False
    scene.broker.stop(crash=crash)
    scene.world.after(_seconds(scene), scene.broker.start)
    return True


# ---- agents ----


@connection_fault("a")
def agent_loses_connection(_scene: Scene, end: End) -> None:
    """An agent's connection is reset; it sends again what was not acknowledged."""
    end.cut()


@connection_fault("a")
def agent_half_open(_scene: Scene, end: End) -> None:
    """Nothing passes between an agent and the broker any more; its steps wait meanwhile."""
    end.mute()


@fault
def agent_repeats_itself(scene: Scene) -> bool:
    """An agent sends the steps of its last seconds again."""
    return scene.world.draw.choice(scene.agents).say_again(scene.world.now)


@fault
def agents_hold_back(scene: Scene) -> bool:
    """Connected agents cannot reach the broker for a while; all their steps come at once then."""
    return _keep_away(scene, [agent.name for agent in scene.agents if isinstance(agent, ConnectedAgent)])


# ---- guards ----


@connection_fault("guard")
def guard_loses_connection(_scene: Scene, end: End) -> None:
    """A guard's connection is reset; what the broker sends meanwhile never comes."""
    end.cut()


@connection_fault("guard")
def guard_half_open(_scene: Scene, end: End) -> None:
    """Nothing passes between a guard and the broker any more, and nobody is told."""
    end.mute()


@connection_fault("guard")
def guard_does_not_read(scene: Scene, end: End) -> None:
    """What the broker sends to a guard comes late, all at once."""
    end.pause()
    scene.world.after(_seconds(scene), end.resume)


@fault
def guards_cut_off(scene: Scene) -> bool:
    """The guards lose their connections and get no others for a while."""
    return _keep_away(scene, [guard.name for guard in scene.guards])


# ---- the process ----


@fault
def killed(scene: Scene) -> bool:
    """`kill -9` at any moment between two callbacks."""
    return scene.kill(_seconds(scene))


@fault
def killed_before_commit(scene: Scene) -> bool:
    """`kill -9` just before one of the next transactions is committed."""
    return _kill_at_commit(scene, "killed_before_commit", "before")


@fault
def killed_after_commit(scene: Scene) -> bool:
    """`kill -9` just after one of the next transactions was committed: nothing was acknowledged or sent yet."""
    return _kill_at_commit(scene, "killed_after_commit", "after")


@fault
def power_lost(scene: Scene) -> bool:
    """The machine ends within a transaction: any of its sectors are on the disk, and the mark may be older."""
    return _kill_at_commit(scene, "power_lost", "within")


def _kill_at_commit(scene: Scene, name: str, moment: Moment) -> bool:
    """Return False: it has not happened yet, and never does if the process ends before. It is counted when it does."""

    def kill() -> None:
        scene.world.faults[name] += scene.kill(downtime)

    downtime, later = _seconds(scene), scene.world.draw.randint(0, 20)
    if scene.sidecar.running and scene.sidecar.at_commit is None:
        scene.sidecar.at_commit = later, moment, kill
    return False


@fault
def restarted(scene: Scene) -> bool:
    """The sidecar ends in order, and is started again."""
    return scene.restart(_seconds(scene))


@fault
def disk_full(scene: Scene) -> bool:
    """The disk takes no transaction for a while."""
    disk, happened = scene.sidecar.disk, not scene.sidecar.disk.full
    if happened:
        disk.full = True
        scene.world.after(_seconds(scene), disk.empty)
    return happened


@fault
def suspended(scene: Scene) -> bool:
    """The process gets no processor for a while (SIGSTOP, a suspended machine)."""
    return scene.sidecar.sleep(_seconds(scene))


@fault
def clock_set(scene: Scene) -> bool:
    """The wall clock jumps, forward or back, by up to ten minutes."""
    scene.world.wall_ahead = scene.world.draw.uniform(-600.0, 600.0)
    return True


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
