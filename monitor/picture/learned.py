"""The basis of a verdict on a learned model, in words: its bands, the support, and the pairs to visit."""

from __future__ import annotations

from msgspec.structs import replace

from monitor.model import MDP
from monitor.picture.explanation import ComparedWorld, Explanation
from monitor.picture.sheet import interval
from monitor.picture.state_words import state_in_words


def learned_in_words(alarm: Explanation, model: MDP) -> list[str]:
    """Return sentences on the bands of each value, the data behind the answer, pairs to visit, and missing parts."""
    verdict = alarm.evidence.verdict
    if verdict.bands is None:
        return []
    named = [(branch.name, _bands(alarm, branch)) for branch in _different(alarm)]
    lines = [f"{name}: {', '.join(words)}." for name, words in named if words]
    if verdict.support == 0:
        lines.append("The answer rests on rows that were never recorded (within 90 % of the weight).")
    elif verdict.support is not None:
        visits = "visit" if verdict.support == 1 else "visits"
        lines.append(
            f"The answer rests on at least {verdict.support:,} {visits} of each row that matters (90 % of the weight)."
        )
    if verdict.to_visit:
        pairs = (f"{alarm.action(action)} in {state_in_words(model, state)}" for state, action in verdict.to_visit)
        lines.append(f"To narrow it, record more visits of: {'; '.join(pairs)}.")
    return [*lines, *([f"{verdict.bands.reason}."] if verdict.bands.reason else [])]


def _different(alarm: Explanation) -> list[ComparedWorld]:
    """Return the compared worlds.

    For a difference, return only one world, because both have the value and bands of the difference.
    """
    if alarm.difference:
        return [replace(alarm.branches[0], name="difference")]
    return list(alarm.branches)


def _bands(alarm: Explanation, branch: ComparedWorld) -> list[str]:
    how, words = alarm.evidence.verdict.bands, []
    assert how is not None
    if branch.credible is not None and how.level is not None:
        words.append(f"credible ({100 * how.level:.4g} %): {interval(branch.credible, reward=alarm.reward)}")
    if branch.guaranteed is not None and how.delta is not None:
        words.append(f"guaranteed ({100 * (1 - how.delta):.6g} %): {interval(branch.guaranteed, reward=alarm.reward)}")
    return words
