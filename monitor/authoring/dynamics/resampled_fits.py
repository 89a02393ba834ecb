"""Fits of a learned world to resampled episodes. Where their answers differ, the recordings leave the answer open."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np

from monitor.authoring.dynamics.learned_world import Candidate, Draft, Parts, refitted
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.worlds.world_manifest import File


def with_fits(world: Candidate, draft: Draft, parts: Parts, seed: int, count: int) -> Candidate:
    """Return the world with `count` fits of its form to episodes drawn with replacement (Efron 1979).

    The episodes for the fit and the episodes for the noise are resampled separately, each to their own number. Each fit
    has its own manifest, in a folder beside the manifest of the world.
    """
    assert world.form is not None
    rng, files, pinned = np.random.default_rng((seed, 1)), dict(world.files), []
    for number in range(1, count + 1):
        own = replace(draft, stem=f"{draft.stem}.fit{number}")
        again = Parts(_resampled(parts.fit, rng), _resampled(parts.choice, rng), parts.check)
        fit = refitted(world.form, own, again, seed + number)
        content = fit.text.encode()
        names = {**fit.files, f"{own.stem}.yaml": content}
        files |= {f"{draft.stem}.fits/{name}": each for name, each in names.items()}
        pinned.append(File(file=f"{draft.stem}.fits/{own.stem}.yaml", sha256=sha256(content).hexdigest()))
    return replace(world, manifest=world.manifest.model_copy(update={"fits": tuple(pinned)}), files=files)


def _resampled(steps: RecordedSteps, rng: np.random.Generator) -> RecordedSteps:
    """Return the same number of paths, drawn with replacement."""
    paths = list(steps.by_path().values())
    return steps[np.concatenate([paths[n] for n in rng.choice(len(paths), len(paths))])]
