"""Round trips through UMB and PRISM's explicit files, and agreement with other programs that read and write them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.formats.choices import keeps_order, merged_order
from monitor.errors import ModelError, ModelWarning
from monitor.model import MDP, load_model, save_model
from monitor.model.emissions import Emissions
from tests.model.verification_models import random_model, same, storm_values, stormpy, values

TOLERANCE = 1e-12
"""Both sides sum products of the same doubles over a few steps."""


def through(model: MDP, file: Path) -> MDP:
    save_model(model, file)
    return load_model(file)


# ---- round trips ----


@pytest.mark.parametrize("seed", range(20))
def test_actions_that_are_not_available_everywhere_keep_their_names(seed: int, tmp_path: Path) -> None:
    model = random_model(seed)
    if model.availability.all():
        return
    file = tmp_path / "m.tra"
    if not keeps_order(model):
        with pytest.warns(ModelWarning, match="the numbers of actions"):
            save_model(model, file)
        assert set(load_model(file).action_names) <= {f"a{n}" for n in range(model.actions)}
        return
    read = through(model, file)
    assert read.action_names == tuple(f"a{n}" for n in range(model.actions))
    same(model, replace(read, action_names=()))


def test_a_file_beside_it_that_would_be_read_too_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.srew").write_text("3 1\n0 1\n")
    with pytest.raises(ModelError, match=r"m\.srew exists and would be read as part of the model: remove it"):
        save_model(random_model(1), tmp_path / "m.tra")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"action_names": ("go on",)}, "the action name 'go on' cannot be written to .tra files"),
        ({"valuations": (("a,b",), ("c",))}, "the text 'a,b' of a valuation cannot be written"),
        ({"valuations": (("true",), ("c",))}, "the text 'true' of a valuation cannot be written"),
    ],
)
def test_texts_that_explicit_files_cannot_hold(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    model = MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], **changes)
    with pytest.raises(ModelError, match=says):
        save_model(model, tmp_path / "m.tra")


def test_valuations_of_mixed_kinds_cannot_go_into_umb(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 1.0), (1, 0, 1, 1.0)]
    model = MDP.from_transitions(states=2, actions=1, transitions=rows, valuations=[[1], ["one"]])
    with pytest.raises(ModelError, match="a number in one state and text or a Boolean in another"):
        save_model(model, tmp_path / "m.umb")


def test_programs_are_only_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be written in this format; write a \.npz file"):
        save_model(random_model(1), tmp_path / "m.prism")


def test_the_label_init_is_that_of_the_initial_states(tmp_path: Path) -> None:
    model = random_model(3)
    assert model.initial is not None
    marked = replace(model, labels={"init": model.initial > 0})
    for suffix in (".umb", ".tra"):
        with warnings.catch_warnings(action="ignore", category=ModelWarning):
            read = through(marked, tmp_path / f"m{suffix}")
        assert read.initial is not None
        np.testing.assert_array_equal(read.initial, model.initial)
        with pytest.raises(ModelError, match="the label 'init' marks the initial states in this format"):
            save_model(replace(model, labels={"init": model.initial == 0}), tmp_path / f"n{suffix}")


def test_states_that_order_actions_differently_leave_the_order_of_the_file() -> None:
    state, kind = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    assert merged_order(state, kind, 2).tolist() == [0, 1]
    assert merged_order(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist() == [1, 0]


@pytest.mark.parametrize("suffix", [".npz", ".umb"])
def test_what_states_show_by_chance_is_kept_to_the_bit(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    model = random_model(7)
    shows = [(s, o, p) for s in range(model.states) for o, p in enumerate(rng.dirichlet(np.ones(3))) if s != o]
    totals = np.bincount([s for s, *_ in shows], [p for *_, p in shows])
    shown = Emissions.from_tuples(model.states, 4, [(s, o, p / totals[s]) for s, o, p in shows])
    hidden = replace(model, emissions=shown)
    same(hidden, through(hidden, tmp_path / f"m{suffix}"))


# ---- other programs ----


@pytest.mark.parametrize("seed", range(8))
def test_umbi_reads_and_writes_the_same_model(seed: int, tmp_path: Path) -> None:
    ats = pytest.importorskip("umbi.ats", reason="umbi is not installed: it comes with the extra `dev`")
    model = random_model(seed)
    save_model(model, tmp_path / "m.umb")
    read = ats.read(tmp_path / "m.umb")
    assert (read.num_states, read.num_choices) == (model.states, int((np.diff(model.indptr) > 0).sum()))
    branches = [(branch.target, branch.prob) for choice in read.choices for branch in choice.branches]
    assert branches == list(zip(model.successors.tolist(), model.probabilities.tolist(), strict=True))
    ats.write(read, tmp_path / "back.umb")
    back = load_model(tmp_path / "back.umb")
    np.testing.assert_array_equal(back.probabilities, model.probabilities)
    np.testing.assert_array_equal(back.indptr, model.indptr)


@pytest.mark.parametrize("seed", range(6))
def test_storm_reads_a_umb_file_of_ours(seed: int, tmp_path: Path) -> None:
    module = stormpy()
    model = random_model(seed, by_successor=False)
    save_model(model, tmp_path / "m.umb")
    built = module.build_model_from_umb(str(tmp_path / "m.umb"))
    for best, word in ((np.max, "max"), (np.min, "min")):
        reach, total = values(model, "goal", 6, best)
        np.testing.assert_allclose(storm_values(built, f'P{word}=? [ F<=6 "goal" ]'), reach, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(storm_values(built, f"R{word}=? [ C<=6 ]"), total, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(6))
def test_files_that_storm_writes_are_read(seed: int, tmp_path: Path) -> None:
    """Our model goes to Storm as UMB, comes back as UMB and as DRN, and is the same; DRN is rounded."""
    module = stormpy()
    from stormpy import io  # noqa: PLC0415 - optional

    model = random_model(seed, by_successor=False, everywhere=seed % 2 == 0)
    save_model(model, tmp_path / "m.umb")
    built = module.build_model_from_umb(str(tmp_path / "m.umb"))
    io.export_to_umb(built, str(tmp_path / "back.umb"))
    io.export_to_drn(built, str(tmp_path / "back.drn"))
    for name, tolerance in (("back.umb", 0.0), ("back.drn", 1e-9)):
        read = load_model(tmp_path / name)
        assert set(read.labels) == set(model.labels)
        mine, theirs = values(model, "goal", 5, np.max), values(read, "goal", 5, np.max)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("seed", range(3))
def test_observations_go_to_storm_and_come_back(seed: int, tmp_path: Path) -> None:
    """Storm takes only models whose states have the same actions where they show the same."""
    module = stormpy()
    from stormpy import io  # noqa: PLC0415 - optional

    model = random_model(seed, by_successor=False, everywhere=True)
    shows = np.random.default_rng(seed).integers(0, 3, model.states)
    shows[0] = 2  # Storm and DRN count the observations that there are
    first = np.arange(1.0, model.states + 1)
    hidden = replace(model, emissions=Emissions.of_states(3, shows), initial=first / first.sum())
    save_model(hidden, tmp_path / "m.umb")
    built = module.build_model_from_umb(str(tmp_path / "m.umb"))
    assert list(built.observations) == shows.tolist()
    io.export_to_umb(built, str(tmp_path / "back.umb"))
    io.export_to_drn(built, str(tmp_path / "back.drn"))
    for name in ("back.umb", "back.drn"):
        emissions = load_model(tmp_path / name).emissions
        assert emissions is not None
        assert emissions.only is not None
        assert emissions.only.tolist() == shows.tolist()
