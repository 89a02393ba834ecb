"""Roll-outs of an environment as a CSV file, from which `cfmon model learn` estimates a model with its counts.

Roll-outs are for environments that cannot be enumerated, because they are random or too large. The columns are
`episode`, `step`, the entries of the state's key (under their names, or `s0`, `s1`, ...), `action`, `reward`,
`terminated`, `truncated`, and the entries of the next state's key (with `next_` before the name). If the key is not the
observation, the columns `feature[0]`, ... have the observation.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor.atomic import new_path
from monitor.authoring.exploration.copies import action_count, action_mask
from monitor.authoring.exploration.explorable import Environment
from monitor.authoring.exploration.identity import Flat, StateIdentity, flat, identity_of
from monitor.authoring.exploration.source import close, open_environment
from monitor.errors import ModelError
from monitor.model.annotations import Valuation
from monitor.user_code import explained, load_object

LONGEST_EPISODE: Final = 10_000
"""Number of steps after which an episode is cut off if the environment does not end it."""

Chooser = Callable[[Valuation], int]


@dataclass(frozen=True)
class RolledOut:
    """Summary of the written file: `columns` of the state, number of `features`, numbers of steps and episodes."""

    columns: tuple[str, ...]
    features: int
    steps: int
    episodes: int


def roll_out(
    source: str,
    target: Path,
    steps: int,
    *,
    policy: str = "random",
    key: str | None = None,
    seed: int = 0,
    report: Callable[[int], None] = lambda _: None,
) -> RolledOut:
    """Run `steps` steps of an environment, over as many episodes as needed, and write each as a row of a CSV file.

    Args:
        source: `gymnasium:ID?argument=value` or `module.py:make_env`.
        target: file to write.
        steps: number of rows.
        policy: `random`, or `module.py:function`, which is called with the key of a state and returns an action or the
            probabilities of all actions.
        key: what identifies a state, as for `explore`.
        seed: seed of the first reset (then `seed` + 1, ...), and of the actions.
        report: called with the number of steps done.

    Raises ModelError if the environment or the policy fails, or if the file cannot be written.
    """
    if steps < 1:
        raise ModelError("--rollouts must be at least 1")
    environment = open_environment(source)
    try:
        environment.reset(seed=seed)
        run = _Run(environment, identity_of(environment, key), _chooser(policy, environment, seed))
        with new_path(target) as hidden, hidden.open("w", encoding="utf-8", newline="") as file:
            return _written(run, csv.writer(file), steps, seed, report)
    except ModelError as error:
        raise ModelError(f"environment {source}: {error}") from error
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error.strerror}") from error
    except Exception as error:
        raise ModelError(f"environment {source}: it failed ({explained(error)})") from error
    finally:
        close(environment)


@dataclass(frozen=True)
class _Run:
    """An environment, the identity of its states, and the policy."""

    environment: Environment
    identity: StateIdentity
    choose: Chooser

    def seen(self, raw: object) -> tuple[Valuation, Flat | None]:
        """Return the key of the current state and its flattened observation."""
        observation = flat(self.environment.observation_space, raw)
        return self.identity.key(self.environment, raw, observation), observation

    def episode(self, seed: int) -> Iterator[tuple[Valuation, Flat | None, int, float, bool, bool, Valuation]]:
        """Yield the steps of one episode: key, observation, action, reward, terminated, truncated, next key."""
        raw, _ = self.environment.reset(seed=seed)
        key, observation = self.seen(raw)
        for count in range(1, LONGEST_EPISODE + 1):
            action = self.choose(key)
            raw, reward, terminated, truncated, _ = self.environment.step(action)
            after, seen = self.seen(raw)
            cut = bool(truncated) or count == LONGEST_EPISODE
            yield key, observation, action, float(reward), bool(terminated), cut, after
            if terminated or cut:
                return
            key, observation = after, seen


def _written(run: _Run, out: Any, steps: int, seed: int, report: Callable[[int], None]) -> RolledOut:  # noqa: ANN401
    """Write the header and the rows. `out`: a writer of the module csv."""
    done = episode = width = 0
    names: tuple[str, ...] = ()
    while done < steps:
        for number, (key, seen, action, reward, terminated, truncated, after) in enumerate(run.episode(seed + episode)):
            if not names:
                names = run.identity.variables or tuple(f"s{n}" for n in range(len(key)))
                width = 0 if seen is None or tuple(seen.tolist()) == key else len(seen)
                out.writerow(_header(names, width))
            done += 1
            last = done == steps and not terminated
            features = () if seen is None or not width else seen.tolist()
            out.writerow((episode, number, *key, action, reward, terminated, truncated or last, *after, *features))
            report(done)
            if done == steps:
                break
        episode += 1
    return RolledOut(names, width, done, episode)


def _header(names: tuple[str, ...], width: int) -> list[str]:
    after = [f"next_{name}" for name in names]
    features = [f"feature[{n}]" for n in range(width)]
    return ["episode", "step", *names, "action", "reward", "terminated", "truncated", *after, *features]


def _chooser(policy: str, environment: Environment, seed: int) -> Chooser:
    """Return the policy as a function of a state's key."""
    count, rng = action_count(environment), np.random.default_rng(seed)
    if policy == "random":

        def draw(_: Valuation) -> int:
            mask = action_mask(environment, count)
            return int(rng.integers(count) if mask is None else rng.choice(np.flatnonzero(mask)))

        return draw
    function = load_object(policy, ModelError)

    def choose(key: Valuation) -> int:
        try:
            answer = np.asarray(function(key))
        except Exception as error:
            raise ModelError(f"--policy {policy}: it failed in state {list(key)} ({explained(error)})") from error
        if answer.shape == () and answer.dtype.kind in "iu" and 0 <= answer < count:
            return int(answer)
        if answer.shape == (count,) and (answer >= 0).all() and abs(answer.sum() - 1) < 1e-6:
            return int(rng.choice(count, p=answer / answer.sum()))
        raise ModelError(
            f"--policy {policy}: in state {list(key)} it returned {answer.tolist()!r:.80}; return an action of "
            f"0..{count - 1}, or {count} probabilities"
        )

    return choose
