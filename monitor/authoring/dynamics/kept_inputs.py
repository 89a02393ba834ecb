"""Recorded data that a learned world keeps: the ranges in which actions were recorded, and inputs for resampling."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np

from monitor.authoring.dynamics.learned_world import Candidate, Draft, Parts
from monitor.authoring.dynamics.ranges import recorded_actions
from monitor.worlds.resampling import EPISODE, MOST_RECORDED
from monitor.worlds.world_manifest import File


def with_recorded_actions(world: Candidate, draft: Draft, parts: Parts) -> Candidate:
    """Return the world with the ranges in which each action was recorded, in the steps for fitting and choosing."""
    names = [each.name for each in (*draft.features, *draft.inputs)]
    a, x, w = (np.concatenate([getattr(part, name) for part in (parts.fit, parts.choice)]) for name in ("a", "x", "w"))
    found = recorded_actions(names, draft.actions, a, np.concatenate([x, w], axis=1))
    return replace(world, manifest=world.manifest.model_copy(update={"recorded": found}))


def with_recorded_inputs(world: Candidate, draft: Draft, parts: Parts) -> Candidate:
    """Return the world with the inputs of the steps used to fit or choose it, without the steps that check it."""
    if not draft.inputs:
        return world
    learned_from = parts.fit, parts.choice
    paths, rows = (np.concatenate([getattr(each, name) for each in learned_from]) for name in ("path", "w"))
    order = np.argsort(paths, kind="stable")[:MOST_RECORDED]
    lines = [",".join([EPISODE, *(each.name for each in draft.inputs)])]
    numbers = np.unique(paths[order], return_inverse=True)[1]
    for number, row in zip(numbers.tolist(), rows[order].tolist(), strict=True):
        lines.append(",".join([str(number), *map(repr, row)]))
    content, name = "\n".join([*lines, ""]).encode(), f"{draft.stem}.inputs.csv"
    pinned = File(file=name, sha256=sha256(content).hexdigest())
    manifest = world.manifest.model_copy(update={"recorded_inputs": pinned})
    return replace(world, manifest=manifest, files={**world.files, name: content})
