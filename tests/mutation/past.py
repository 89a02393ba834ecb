"""Faults of the past, put back one by one: `python -m tests.mutation.past`. Some test has to notice each of them.

A fault is what a user once met, as the smallest change of today's source that brings it back. Each is made in a copy of
the tree, in which the named tests then have to fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("monitor", "tests", "config", "policies", "docs", "deploy", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Fault:
    """What was wrong, the change that brings it back, and the tests that notice; `compiled`: not with their sources."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]
    compiled: bool = False


NODE = "msgspec.Struct, frozen=True, cache_hash=True"
FAULTS: Final = (
    Fault(
        "a & b and a | b are one obligation",
        (
            ("monitor/logic/automaton.py", "from typing import Protocol", "from typing import NamedTuple, Protocol"),
            ("monitor/logic/automaton.py", f"class _All({NODE})", "class _All(NamedTuple)"),
            ("monitor/logic/automaton.py", f"class _Any({NODE})", "class _Any(NamedTuple)"),
        ),
        ("tests/logic/test_automaton.py", "-k", "same_operands"),
    ),
    Fault(
        "what looks back from before the end sees the world after it",
        (("monitor/exact/evaluators.py", "law.until != world.observed and (", "law.until < world.observed and ("),),
        ("tests/exact/test_ended_worlds.py", "-k", "before_the_end"),
    ),
    Fault(
        "what looks back from beyond the end earns nothing",
        (("monitor/exact/history.py", "rewarded = self._automaton.rewards(cell.obligation)", "rewarded = False"),),
        ("tests/exact/test_ended_worlds.py", "-k", "before_the_end"),
    ),
    Fault(
        "a question asked before changes an answer",
        (
            (
                "monitor/exact/evaluators.py",
                "key = (nominal, law, measure, *before)",
                "key = (nominal, law, measure, nominal, law)",
            ),
        ),
        ("tests/exact/test_ended_worlds.py", "-k", "asked_before"),
    ),
    Fault(
        "bounds take room for every start point",
        (
            (
                "monitor/exact/forward/evaluator.py",
                "            self._workspace.levels.grow(first, second)",
                "            self._workspace.levels.grow(first, second), self._workspace.grow()",
            ),
        ),
        ("tests/exact/test_long_bounds.py", "-k", "one_start_point"),
        compiled=True,
    ),
    Fault(
        "bounds too large are accepted at start",
        (("monitor/exact/evaluators.py", "if most > MAX_LEVELS:", "if False:"),),
        ("tests/exact/test_long_bounds.py", "-k", "refused_at_start"),
    ),
    Fault(
        "probabilities above 1",
        (
            (
                "monitor/exact/evaluators.py",
                "return min(max(value, 0.0), 1.0) if isinstance(measure, Probability) else value",
                "return value",
            ),
        ),
        ("tests/exact/test_answer_bounds.py", "-k", "above_one"),
    ),
    Fault(
        "rewards whose sums overflow",
        (("monitor/model/rewards.py", "MAX_REWARD = 1e140", "MAX_REWARD = 1e309"),),
        ("tests/model/test_transition_rewards.py", "-k", "no_sense"),
    ),
    Fault(
        "a counterfactual step earns the mean of the plain row",
        (
            (
                "monitor/exact/forward/counterfactual_rows.py",
                "rewarded = len(dynamics.transition_rewards) > 0",
                "rewarded = False",
            ),
        ),
        ("tests/exact/test_transition_rewards.py", "-k", "earned or elsewhere"),
    ),
    Fault(
        "rewards of transitions are averaged at conversion",
        (
            (
                "monitor/authoring/formats/gymnasium_env.py",
                '"transition_rewards": paid - table[rows],',
                '"transition_rewards": 0.0 * paid,',
            ),
        ),
        ("tests/model/test_gymnasium_env.py",),
    ),
    Fault(
        "an environment that does not follow its own table converts without a word",
        (
            (
                "monitor/authoring/formats/conformance.py",
                "if what := table.compare(step):",
                "if (what := table.compare(step)) and not what:",
            ),
        ),
        ("tests/model/test_conformance.py",),
    ),
    Fault(
        "a reward that contradicts the model is not reported",
        (("monitor/stream/session.py", "            yield RewardMismatch(", "            RewardMismatch("),),
        ("tests/stream", "-k", "reward"),
    ),
    Fault(
        "a conflict among held steps is a gap",
        (("monitor/stream/session.py", 'if missing.why == "conflict":', "if False:"),),
        ("tests/stream", "-k", "conflict"),
    ),
    Fault(
        "verify accepts a file under another name",
        (
            (
                "monitor/evidence/verification.py",
                "if expected.id is None or expected.id == document.id:",
                "if True:",
            ),
        ),
        ("tests/cli/test_verify.py",),
    ),
    Fault(
        "verify accepts a path altered with its digest",
        (("monitor/evidence/verification.py", "problems += check_id(document, expected)", ""),),
        ("tests/sidecar/test_every_alteration.py", "tests/cli/test_verify.py"),
    ),
    Fault(
        "verify accepts a manifest of another policy",
        (("monitor/evidence/contradictions.py", "if policy.manifest and named != policy.sha256:", "if False:"),),
        ("tests/evidence/test_rederivation.py", "tests/cli/test_verify.py"),
    ),
    Fault(
        "verify derives the numbers by the engine that gave them",
        (("monitor/evidence/verification.py", "= (REFEREE, ENGINE),", "= (ENGINE,),"),),
        ("tests/cli/test_verify.py",),
    ),
    Fault(
        "tests of rewards and effects with nominal rates are the default",
        (("monitor/types/specs.py", 'test: TestName = "betting"', 'test: TestName = "paper"'),),
        ("tests/evaluation", "-k", "rate or betting or test"),
        compiled=True,
    ),
    Fault(
        "episodes beyond the last 64 are taken again",
        (
            (
                "monitor/stream/reorder_buffer.py",
                "not is_open and entry.episode in self.past",
                "False and entry.episode in self.past",
            ),
        ),
        ("tests/runtime/test_marks.py", "-k", "delivered_twice"),
    ),
    Fault(
        "what may have been taken before is taken",
        (("monitor/stream/reorder_buffer.py", "return entry.time <= self.past.horizon", "return False"),),
        ("tests/stream/test_stream_session.py", "-k", "as_old_as"),
    ),
    Fault(
        "a backlog is taken for overload",
        (("monitor/sidecar/overload.py", " and self._coming.value > self._going.value", ""),),
        ("tests/sidecar/test_backlog.py",),
    ),
    Fault(
        "live agents wait behind another's backlog",
        (("monitor/runtime/monitor.py", "TURN: Final = 16", "TURN: Final = 1_000_000"),),
        ("tests/sidecar/test_backlog.py", "tests/runtime/test_marks.py"),
    ),
    Fault(
        "one agent has the model doubted for everyone",
        (
            (
                "monitor/statistics/model_betting.py",
                "return self._cap if self._capped else self._wealth()",
                "return self._wealth()",
            ),
        ),
        ("tests/runtime/test_marks.py", "tests/statistics/test_fleet.py"),
    ),
    Fault(
        "an agent that starts over under old episodes is nobody's concern",
        (("monitor/stream/session.py", "if entry.episode != self.order.episode:", "if False:"),),
        ("tests/runtime/test_marks.py", "-k", "starts_over"),
    ),
    Fault(
        "an agent that dies between episodes is nobody's concern",
        (
            (
                "monitor/runtime/agent_monitor.py",
                'return "idle" if self.silent(now) > settings.idle_after else None',
                "return None",
            ),
        ),
        ("tests/runtime/test_marks.py", "-k", "idle"),
    ),
)


def main() -> int:
    """Put back each fault (or those whose name holds an argument); 1 if one goes unnoticed."""
    wanted = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not wanted or any(word in fault.name for word in wanted)]
    unnoticed = 0
    for fault in chosen:
        began = time.monotonic()
        if not _passes(fault, ()):
            raise RuntimeError(f"{fault.name}: its tests fail on the tree as it is")
        noticed = not _passes(fault, fault.edits)
        unnoticed += not noticed
        said = "noticed" if noticed else "NOT NOTICED"
        print(f"{said:<12}{time.monotonic() - began:5.0f} s  {fault.name}", flush=True)  # noqa: T201 - what it is for
    return bool(unnoticed)


def _passes(fault: Fault, edits: tuple[tuple[str, str, str], ...]) -> bool:
    """Whether the tests pass in a copy of the tree with these edits."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        for file, old, new in edits:
            text = (tree / file).read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{fault.name}: {file} does not hold {old!r} once"
            (tree / file).write_text(text.replace(old, new), encoding="utf-8")
        return _run(tree, fault)


def _run(tree: Path, fault: Fault) -> bool:
    pure = "0" if fault.compiled else "1"  # else a change of a compiled module would make no difference
    environment = {**os.environ, "PYTHONPATH": str(tree), "MONITOR_UNCOMPILED": pure}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests]
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{fault.name}: the tests could not be run\n{run.stdout[-2000:]}")
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
