"""A guard in the agent's loop that hands over to another policy while alarms call for it (Simplex architecture)."""

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
    """The policy that acted in the newest step.

    Attributes:
        policy: Name of the policy; `nominal` is the agent's own policy.
        sha256: SHA-256 of the policy's file, for the field `policy` of the step's message; None if it is not known yet.
        cause: Why the policy took over; None if the agent's own policy acted.
        steps: Number of steps since the takeover, including this step; 0 if the agent's own policy acted.
    """

    policy: str = NOMINAL
    sha256: str | None = None
    cause: Cause | None = None
    steps: int = 0


@dataclass(frozen=True)
class TakeoverStatus:
    """Counts of the guard so far, and whether the monitor is silent.

    Attributes:
        silent: True if the monitor has given no sign of life for `silent_after` seconds. Before the first sign of life,
            the seconds are counted from the guard's start.
        takeovers: Cause -> number of takeovers.
        steps: Policy -> number of steps in which it acted.
        failures: Number of steps in which another policy raised an error, so that the agent's own policy acted.
        problem: The newest problem; None if there was none.
    """

    silent: bool
    takeovers: Mapping[str, int]
    steps: Mapping[str, int]
    failures: int
    problem: str | None


@final
class Takeover(Generic[State, Action]):
    """Chooses in each step between the action that the agent proposes and the action of another policy.

    A thread receives the monitor's messages over one connection; `action` uses the newest messages and does not wait.
    After the constructor, nothing raises. Only one thread may call `action`, `reset` and `release`. A forked process
    receives nothing, so the monitor counts as silent in that process.

    Args:
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        agent: The agent's name, as in the topic of its steps.
        policies: Name -> policy, a function from the state to an action. The names are as in the monitor's formulas,
            such as `fallback` or `do(brake)`. An alert that names another policy causes no takeover.
        rules: When to hand over: a file (JSON, or YAML), a map, or `Rules`.
        sha256: Policy -> SHA-256 of its file; `nominal` is the agent's own policy. If a digest is missing here, it is
            taken from the monitor's messages.
        alerts_topic: Root of the topics of alerts, as in the monitor's configuration.
        status_topic: Root of the topics of the monitor's status, as in the monitor's configuration.
        monitor: MQTT client id of the monitor, if several monitors publish their status at this broker. You do not need
            it for the shards of one fleet, because each status says which agents belong to the shard.
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
        self._known = Known(clock())  # only the thread replaces it, as a whole
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
        """Wait at most `timeout` seconds (default: `silent_after`) for the monitor; return whether it is there.

        The wait ends at the monitor's next heartbeat. A status that the broker retains is not enough, because it may be
        old. Return True at once if the monitor has already been heard and is neither silent nor offline. An agent that
        does not wait acts without a guard until the monitor is heard, or until `silent_after` has passed.
        """
        if self._silent():
            self._heard.clear()
            if not self._silent():  # the monitor was heard in the meantime
                return True
        return self._heard.wait(self._rules.silent_after if timeout is None else timeout)

    def action(self, state: State, proposed: Action) -> Action:
        """Return the action to take: `proposed`, or the action of the policy that has taken over.

        If that policy raises an error, return `proposed`; count and log the error.
        """
        before = self._held
        now = situation(self._rules, self._known, self._current, self._policies, self._clock())
        self._held = step(self._rules, before, now, self._fallback)
        if self._held.policy != before.policy:
            self._report(before, self._held)
        return self._act(self._held, state, proposed)

    def reset(self, episode: str | int | None) -> None:
        """Begin another episode. A takeover ends, unless the rules say `back: never`. Earlier alarms do not count.

        `episode`: the episode's name in the messages of its steps, such as `steps.episode`; alarms of other episodes do
        not count. If the name is None (unknown), a late alarm of the last episode counts if it is received after this
        call.
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
        """Hand back to the agent's own policy. An alarm that still calls for a takeover causes another takeover."""
        self._held = NOBODY

    @property
    def acting(self) -> Acting:
        """The policy that acted in the newest step."""
        return self._acting

    @property
    def status(self) -> TakeoverStatus:
        """Counts of the guard so far, and whether the monitor is silent."""
        return TakeoverStatus(self._silent(), dict(self._takeovers), dict(self._steps), self._failures, self._problem)

    def close(self) -> None:
        """Stop receiving messages. When `silent_after` has passed, the monitor counts as silent.

        In a process that was forked from the guard's process, do nothing, because the connection belongs to the parent.
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
        """Write a line of the log in the thread, because a log handler may wait for a disk or a network."""
        if os.getpid() != self._pid:  # a forked process has no thread
            write(line, *values)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(partial(write, line, *values))

    # ---- the thread ----

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        except Exception as error:  # noqa: BLE001 - the agent continues; the monitor counts as silent
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
        """Report an alarm of another episode than the agent's, unless it may be a late alarm of the last episode."""
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
    """Return the policy that takes over if the monitor is blind or silent.

    Raises ClientError if the rules do not determine a policy.
    """
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
    """Return the map in a message; an empty map if the message contains none."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
