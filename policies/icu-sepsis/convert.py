"""Make model.npz and the clinicians' policy from the `icu-sepsis` package, version 2.0.1 (MIT licence).

Usage: python policies/icu-sepsis/convert.py [--wheel FILE]

Without `--wheel`, pip downloads the package into a temporary folder. It is neither installed nor imported, because it
depends on gym, pandas and scikit-learn: its two data files are read from the wheel, whose SHA-256 is pinned below.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.model.io import save_model
from monitor.model.mdp import MDP
from monitor.policy.export import manifest_yaml, table_onnx
from monitor.policy.manifest import Input, Manifest, Output

WHEEL_SHA256 = "7f55ff190f11b252593000814b6cd56ecf9b5de6fdca256e4966c0a0dc369466"
ASSETS = "icu_sepsis/envs/assets/"
STATES, ACTIONS = 716, 25
DEATH, SURVIVAL = 713, 714
ENDED = (713, 714, 715)  # death, survival, and the successor of both in the package
HERE = Path(__file__).parent

Array = npt.NDArray[Any]


def main() -> None:
    """Convert the package, write the files, and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="a local icu_sepsis-2.0.1 wheel")
    wheel = parser.parse_args().wheel
    data, admissible = read_wheel(wheel.read_bytes() if wheel else download())
    model = convert(data, admissible)
    save_model(model, HERE / "model.npz")
    write_clinicians(data["expert_policy"], admissible)
    size = (HERE / "model.npz").stat().st_size
    print(f"model.npz: {model.states} states, {model.probabilities.size} transitions, {size} bytes")


def download() -> bytes:
    """Download the wheel and return its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "icu-sepsis==2.0.1"]
        subprocess.run(pip, check=True)  # noqa: S603 - fixed arguments
        return next(Path(folder).glob("*.whl")).read_bytes()


def read_wheel(content: bytes) -> tuple[dict[str, Array], Array]:
    """Return the arrays of dynamics.npz, and the admissible actions, [S, A] bool."""
    if hashlib.sha256(content).hexdigest() != WHEEL_SHA256:
        raise SystemExit("the wheel is not the icu-sepsis 2.0.1 this script was written for (its SHA-256 differs)")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        with np.load(io.BytesIO(archive.read(ASSETS + "dynamics.npz")), allow_pickle=False) as arrays:
            data = dict(arrays)
        lines = archive.read(ASSETS + "admissible_actions.txt").decode().splitlines()
    admissible = np.zeros((STATES, ACTIONS), dtype=np.bool_)
    for state, line in enumerate(lines[1 : STATES + 1]):  # the first line counts the actions of each state
        admissible[state, [int(action) for action in line.split()]] = True
    return data, admissible


def convert(data: dict[str, Array], admissible: Array) -> MDP:
    """Return the package's dynamics without inadmissible actions, and with absorbing final states.

    The package fills the rows of inadmissible actions with averages, not estimates. It lets death and survival lead
    to state 715, a step that no episode contains; here they are absorbing.
    """
    matrix = data["tx_mat"].copy()
    rewards = (matrix * data["r_mat"]).sum(axis=2)
    matrix[~admissible] = 0.0
    rewards[~admissible] = 0.0
    for state in ENDED:
        matrix[state] = 0.0
        matrix[state, :, state] = 1.0
        rewards[state] = 0.0
    rows, successors = np.nonzero(matrix.reshape(STATES * ACTIONS, STATES))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=STATES * ACTIONS))])
    return MDP.from_rows(
        states=STATES,
        actions=ACTIONS,
        indptr=indptr,
        successors=successors,
        probabilities=matrix.reshape(STATES * ACTIONS, STATES)[rows, successors],
        rewards=rewards,
        labels={"death": [DEATH], "survival": [SURVIVAL]},
        initial=data["d_0"],
        observations=data["state_cluster_centers"].astype(np.float32),
        source="icu-sepsis 2.0.1",
    )


def write_clinicians(expert: Array, admissible: Array) -> None:
    """Write clinicians.onnx and .yaml: the estimated behaviour of the clinicians, admissible actions only."""
    probabilities = np.where(admissible, expert, 0.0)
    for state in ENDED:  # any action: the state is absorbing
        probabilities[state, 0] = 1.0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    content = table_onnx(probabilities, "index", "probabilities")
    (HERE / "clinicians.onnx").write_bytes(content)
    manifest = Manifest(
        name="clinicians",
        description="What the clinicians did, as estimated from MIMIC-III, restricted to the admissible actions.",
        file="clinicians.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name="state", kind="index"),
        output=Output(name="probabilities", kind="probabilities"),
        mode="stochastic",
        provenance="convert.py, from icu-sepsis 2.0.1 (MIT); see PROVENANCE.md",
    )
    (HERE / "clinicians.yaml").write_text(manifest_yaml(manifest))


if __name__ == "__main__":
    main()
