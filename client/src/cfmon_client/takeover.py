"""A guard in the agent's loop: hands over to another policy while the monitor's alarms call for it (Simplex)."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, final

from cfmon_client.alert import Alert
from cfmon_client.broker import Broker, as_broker
from cfmon_client.connection import LOG, LimitedLog
from cfmon_client.errors import ClientError
from cfmon_client.steps import check_agent
from cfmon_client.subscription import alert_of, receive
from cfmon_client.takeover_logic import NOBODY, Cause, Current, Held, Known, situation, step
from cfmon_client.takeover_rules import Rules, read_rules

__all__ = ["NOMINAL", "Acting", "Takeover", "TakeoverStatus"]

NOMINAL: Final = "nominal"
"""Name of the agent's own policy."""

_PATIENCE: Final = 5.0
"""Seconds to wait for the thread to end."""

State = TypeVar("State")
Action = TypeVar("Action")


@dataclass(frozen=True)
class Acting:
    """Who acted in the newest step.

    Attributes:
        policy: Name of the policy; `nominal` is the agent's own.
        sha256: SHA-256 of its file, for the `policy` of the step's message; None while the monitor has not named it.
        cause: Why the policy took over; None while the agent's own acts.
        steps: Number of steps since the takeover, this one included; 0 while the agent's own policy acts.
    """

    policy: str = NOMINAL
    sha256: str | None = None
    cause: Cause | None = None
    steps: int = 0


@dataclass(frozen=True)
class TakeoverStatus:
    """What the guard has done so far.

    Attributes:
        silent: True if nothing was heard of the monitor for `silent_after`, which begins with the guard.
        takeovers: Cause -> number of takeovers.
        steps: Policy -> number of steps in which it acted.
        failures: Number of steps in which a policy should have acted and raised an error, so that the agent's own did.
        problem: The newest problem; None if there was none.
    """

    silent: bool
    takeovers: Mapping[str, int]
    steps: Mapping[str, int]
    failures: int
    problem: str | None


@final
class Takeover(Generic[State, Action]):
    """Chooses in each step between the action that the agent proposes and that of another policy.

    A thread listens to the monitor, over one connection; `action` reads what it has heard and waits for nothing. After
    the constructor, nothing raises. Only one thread may call `action`, `reset` and `release`. In a forked process
    nothing is heard, so that the monitor counts as silent there.

    Args:
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        agent: The agent's name, as in the topic of its steps.
        policies: Name -> policy, a function from the state to an action. The names are those of the monitor's
            formulas, such as `fallback` or `do(brake)`. An alert that names another does not hand over.
        rules: When to hand over: a file (JSON, or YAML), a map, or `Rules`.
        sha256: Policy -> SHA-256 of its file; `nominal` is the agent's own. Others are learned from the monitor.
        alerts_topic: Root of the topics of alerts, as in the monitor's configuration.
        status_topic: Root of the topics of the monitor's status, likewise.
        monitor: MQTT client id of the monitor, if several publish their status at this broker. Not needed for the
            shards of one fleet: their statuses say which agents are theirs.
        clock: Monotonic time in seconds.

    Raises:
        ClientError: An argument or a rule is wrong. A broker or a monitor that is away is no error: the rules say what
            happens then.
    """

    def __init__(
        self,
        broker: Broker | str,
        agent: str,
        policies: Mapping[str, Callable[[State], Action]],
        *,
        rules: Rules | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        sha256: Mapping[str, str] | None = None,
        alerts_topic: str = "cfmon/alerts",
        status_topic: str = "cfmon/status",
        monitor: str = "+",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = as_broker(broker)
        check_agent(agent)
        self._agent = agent
        self._rules = read_rules(rules)
        self._policies = dict(policies)
        self._fallback = _fallback(self._rules, self._policies)
        self._topics = f"{alerts_topic}/{agent}/+", f"{status_topic}/{monitor}"
        self._clock = clock
        self._sha256 = dict(sha256 or {})
        self._known = Known(clock())  # replaced as a whole, by the thread only
        self._current, self._held, self._acting = Current(), NOBODY, Acting()
        self._takeovers: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._failures = 0
        self._problem: str | None = None
        self._limited = LimitedLog(clock)
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._heard = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cfmon-takeover", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the monitor gives a sign of life, at most `timeout` seconds; return whether it is there.

        That is its next heartbeat: what the broker retains of an earlier one says nothing about now. The monitor counts
        as there until it is silent, or says that it ends. An agent that begins earlier acts unguarded until then, for
        the time that `silent_after` says.

        `timeout`: by default as long as `silent_after`.
        """
        if self._silent():
            self._heard.clear()
            if not self._silent():  # it was heard in between
                return True
        return self._heard.wait(self._rules.silent_after if timeout is None else timeout)

    def action(self, state: State, proposed: Action) -> Action:
        """Return the action to take: `proposed`, or that of the policy that has taken over.

        If that policy raises an error, `proposed` is returned; the error is counted and logged.
        """
        before = self._held
        now = situation(self._rules, self._known, self._current, self._policies, self._clock())
        self._held = step(self._rules, before, now, self._fallback)
        if self._held.policy != before.policy:
            self._report(before, self._held)
        return self._act(self._held, state, proposed)

    def reset(self, episode: str | int | None) -> None:
        """Begin another episode. A takeover ends, unless the rules say `back: never`; earlier alarms do not count.

        `episode`: its name in the messages of its steps, such as `steps.episode`; alarms of another episode do not
        count. None: not known. Then an alarm of the last episode counts that first comes after this call.
        """
        if episode is None and self._limited.due("unnamed"):
            self._log(
                LOG.warning, "%s: reset() without the episode's name: a late alarm of the last one counts", self._agent
            )
        over = frozenset(alert.id for alert in self._known.alerts.values())
        self._current = Current(episode, over, self._clock())
        if self._rules.back != "never":
            self.release()

    def release(self) -> None:
        """Hand back to the agent's own policy; an alarm that still calls for a takeover causes another."""
        self._held = NOBODY

    @property
    def acting(self) -> Acting:
        """Who acted in the newest step."""
        return self._acting

    @property
    def status(self) -> TakeoverStatus:
        """What the guard has done so far."""
        return TakeoverStatus(self._silent(), dict(self._takeovers), dict(self._steps), self._failures, self._problem)

    def close(self) -> None:
        """Stop listening. From then on the monitor counts as silent, after the time that the rules say.

        In a process forked from the guard's, do nothing: the connection belongs to the parent.
        """
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_PATIENCE)

    def __enter__(self) -> Takeover[State, Action]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _silent(self) -> bool:
        return self._clock() - self._known.heard > self._rules.silent_after

    def _act(self, held: Held, state: State, proposed: Action) -> Action:
        chosen, action = NOMINAL, proposed
        if held.policy is not None:
            try:
                chosen, action = held.policy, self._policies[held.policy](state)
            except Exception as error:  # noqa: BLE001 - nothing is raised into the agent's loop
                chosen = NOMINAL
                self._fail(held.policy, error)
        cause, steps = (None, 0) if chosen == NOMINAL else (held.cause, held.steps)
        self._acting = Acting(chosen, self._sha256.get(chosen) or self._known.sha256.get(chosen), cause, steps)
        self._steps[chosen] += 1
        return action

    def _fail(self, policy: str, error: Exception) -> None:
        self._failures += 1
        self._problem = f"policy '{policy}' raised {type(error).__name__}: {error}"
        if self._limited.due(policy):
            self._log(LOG.error, "%s: %s; the agent's own action is taken", self._agent, self._problem)

    def _report(self, before: Held, after: Held) -> None:
        if after.policy is None:
            self._log(LOG.warning, "%s: '%s' hands back after %d steps", self._agent, before.policy, before.steps)
            return
        assert after.cause is not None
        self._takeovers[after.cause] += 1
        self._log(LOG.warning, "%s: '%s' takes over (%s)", self._agent, after.policy, after.cause)

    def _log(self, write: Callable[..., None], line: str, *values: object) -> None:
        """Write a line of the log in the thread: a handler may wait for a disk or a network."""
        if os.getpid() != self._pid:  # no thread here
            write(line, *values)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(partial(write, line, *values))

    # ---- the thread ----

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        except Exception as error:  # noqa: BLE001 - the agent goes on; the rules say what happens in silence
            self._problem = f"listening ended: {error}"
            LOG.exception("%s: listening to the monitor ended", self._agent)
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        hearing, stopped = asyncio.ensure_future(self._hear()), asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait([hearing, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (hearing, stopped):
            task.cancel()
        ended, _ = await asyncio.gather(hearing, stopped, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _hear(self) -> None:
        alerts, statuses = self._topics
        async with aclosing(receive(self._broker, alerts, statuses)) as messages:
            async for message in messages:
                retained = bool(message.retain)
                if message.topic.matches(statuses):
                    self._hear_status(_document(bytes(message.payload)), str(message.topic), retained=retained)
                elif (alert := alert_of(message, self._limited)) is not None:
                    self._known = self._known.with_alert(alert, retained=retained)
                    self._compare_episode(alert)

    def _hear_status(self, document: Mapping[str, Any], topic: str, *, retained: bool) -> None:
        before = self._known
        self._known = before.with_status(document, self._agent, self._clock(), topic=topic, retained=retained)
        if document.get("state") == "offline":
            self._heard.clear()
        elif self._known.signs > before.signs:
            self._heard.set()

    def _compare_episode(self, alert: Alert) -> None:
        """Report an alarm of another episode than ours that cannot just be a late one."""
        current = self._current
        late = self._clock() - current.since <= self._rules.silent_after
        if current.has(alert) or alert.id in current.over or not alert.firing or late:
            return
        self._problem = (
            f"alarm '{alert.formula.name}' is about episode {alert.episode!r}, and reset() was given {current.name!r}, "
            "so it does not count: the monitor is far behind, or steps are published under another name"
        )
        if self._limited.due("episode"):
            LOG.error("%s: %s", self._agent, self._problem)


def _fallback(rules: Rules, policies: Mapping[str, object]) -> str:
    """Return what to hand over to while the monitor is blind or silent. ClientError if the policies do not fit."""
    if not policies or not all(isinstance(name, str) and callable(each) for name, each in policies.items()):
        raise ClientError('policies must map names to functions from a state to an action: {"fallback": fallback}')
    if NOMINAL in policies:
        raise ClientError(f"'{NOMINAL}' is the agent's own policy, whose actions are proposed; give only the others")
    if rules.policy is None:
        if len(policies) > 1 and "fallback" in {rules.when_blind, rules.when_silent}:
            raise ClientError(f"there are several policies; add the rule policy: {' or '.join(sorted(policies))}")
        return min(policies)
    if rules.policy not in policies:
        raise ClientError(f"the rules say policy: {rules.policy!r}, but there is {', '.join(sorted(policies))}")
    return rules.policy


def _document(payload: bytes) -> dict[str, Any]:
    """Return the map in a message; an empty one if there is none."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
