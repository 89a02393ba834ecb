"""Make the world, the two policies and the recorded weather of a heated house; print how often each lets it get cold.

Usage: python policies/heating/make.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml
from onnx import TensorProto, helper, numpy_helper

from monitor import load_world
from monitor.policy.export import manifest_yaml
from monitor.policy.manifest import Input, Manifest, Output
from monitor.worlds.world_policies import as_world_policy

HERE = Path(__file__).parent
Floats = npt.NDArray[np.float64]

FEATURES = ("room", "store", "price")
ACTIONS = {"off": 0.0, "low": 1.5, "high": 4.0}
"""Degrees by which the heater warms the store in a quarter of an hour."""
DAYS, QUARTERS = 14, 96


def main() -> None:
    """Make all files, then let both policies heat the house through the recorded weather."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    write_weather(out / "weather.csv", seed=7)
    write_weather(out / "earlier.csv", seed=8)
    write_world(out, earlier="earlier.csv")
    write_policy(out, "careful", "Keeps the store warm, whatever that costs.", store=(70.0, 64.0), price=0.0)
    write_policy(out, "cheap", "Lets the store cool while the price is high.", store=(58.0, 54.0), price=60.0)
    world, weather = load_world(out / "world.yaml"), np.loadtxt(out / "weather.csv", delimiter=",", skiprows=1)
    for name in ("careful", "cheap"):
        policy = as_world_policy(name, out / f"{name}.yaml", world)
        rng, state, cold = np.random.default_rng(0), np.array([[21.0, 55.0, weather[0, 1]]]), 0
        for outside, price in weather:
            noise = rng.uniform(size=(1, world.noise))
            state = world.step(state, policy.decide(state), noise, (float(outside), float(price)))
            cold += bool(world.holds("cold", state)[0])
        print(f"{name}: cold in {cold} of {len(weather)} quarters of an hour")


def write_world(out: Path, earlier: str) -> None:
    """The room loses heat to the outside and gets it from the store, which the heater warms."""
    kept = np.array([[0.95, 0.05, 0.0], [0.02, 0.95, 0.0], [0.0, 0.0, 0.0]])  # from room, store, price
    heated = np.array([[0.0, degrees, 0.0] for degrees in ACTIONS.values()])
    recorded = np.array([[0.03, 0.0, 0.0], [0.0, 0.0, 1.0]])  # from outside, next price
    content = affine({"x": kept, "a": heated, "w": recorded}, np.zeros(3))
    (out / "location.onnx").write_bytes(content)
    manifest = {
        "kind": "world",
        "version": "heated house 2",
        "features": [
            {"name": "room", "unit": "°C", "low": -20, "high": 60},
            {"name": "store", "unit": "°C", "low": 5, "high": 95, "clip": True},
            {"name": "price", "unit": "€/kWh", "low": 0, "high": 2},
        ],
        "actions": list(ACTIONS),
        "inputs": [{"name": "outside", "unit": "°C"}, {"name": "next_price", "unit": "€/kWh", "low": 0, "high": 2}],
        "recorded_inputs": {"file": earlier, "sha256": hashlib.sha256((out / earlier).read_bytes()).hexdigest()},
        "location": {"file": "location.onnx", "sha256": hashlib.sha256(content).hexdigest()},
        "scale": [0.08, 0.4, 0.0],
        "noise": {"store": {"student": 6}},
        "labels": {"cold": "room < 18"},
    }
    (out / "world.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True))


def write_policy(out: Path, name: str, description: str, *, store: tuple[float, float], price: float) -> None:
    """A policy that heats a little below the first temperature of the store, and fully well below the second."""
    low, high = store
    scores = np.array([[0.0, 0.0, 0.0], [0.0, -1.0, -2.0], [0.0, -price, -2.0 * price]])
    content = affine(
        {"state": scores}, np.array([0.0, low + 0.2 * price, 2.0 * (high + 0.2 * price)]), TensorProto.FLOAT
    )
    (out / f"{name}.onnx").write_bytes(content)
    manifest = Manifest(
        file=f"{name}.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        input=Input(name="state", kind="observation"),
        output=Output(name="y", kind="q_values"),
        mode="greedy",
        name=name,
        description=description,
        provenance="make.py; see PROVENANCE.md",
    )
    (out / f"{name}.yaml").write_text(manifest_yaml(manifest))


def write_weather(file: Path, seed: int) -> None:
    """Two weeks of a made-up winter, with two cold spells, and a price that is high in the evening."""
    rng, rows = np.random.default_rng(seed), []
    drift = 0.0
    for n in range(DAYS * QUARTERS):
        day, hour = n / QUARTERS, n % QUARTERS / 4
        drift = 0.98 * drift + rng.normal() * 0.25
        spell = -9.0 * np.exp(-(((day - 4.5) / 1.2) ** 2)) - 6.0 * np.exp(-(((day - 10.5) / 0.8) ** 2))
        outside = 3.0 + spell + 3.0 * np.sin(2 * np.pi * (hour - 9) / 24) + drift
        price = 0.12 if hour < 6 else 0.40 if 17 <= hour < 21 else 0.22
        rows.append((round(float(outside), 1), price))
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([("outside", "next_price"), *rows])


def affine(terms: Mapping[str, Floats], constant: Floats, kind: int = TensorProto.DOUBLE) -> bytes:
    """Return constant + the sum of input @ matrix over the named inputs, as an ONNX file."""
    element = helper.tensor_dtype_to_np_dtype(kind)
    tensors = [numpy_helper.from_array(constant[np.newaxis].astype(element), "constant")]
    nodes, last = [], "constant"
    for n, (name, matrix) in enumerate(terms.items()):
        tensors.append(numpy_helper.from_array(matrix.astype(element), f"matrix_{name}"))
        total = "y" if n == len(terms) - 1 else f"sum_{name}"
        nodes.append(helper.make_node("MatMul", [name, f"matrix_{name}"], [f"part_{name}"]))
        nodes.append(helper.make_node("Add", [last, f"part_{name}"], [total]))
        last = total
    given = [helper.make_tensor_value_info(name, kind, ["batch", len(matrix)]) for name, matrix in terms.items()]
    results = [helper.make_tensor_value_info("y", kind, ["batch", len(constant)])]
    graph = helper.make_graph(nodes, "affine", given, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="make.py")
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
