"""The benchmark runs, its rows are whole, and what it computes agrees with its peers. No time is asserted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.loading import Missing, Peers
from benchmarks.peers.temporal import Reelay, Rtamt
from benchmarks.rows import Bench, DisagreementError, Row, absolute, agree, compare, load
from benchmarks.table import notes, plot, table
from benchmarks.timing import Timing, Work, in_turns, one_by_one
from monitor.errors import ConfigError
from tests.tiers import first

OURS = {
    "kernel": ["kernel/rtamt", "kernel/reelay"],
    "recording": ["recording"],
    "robust": ["robust/grid", "robust/icu"],
    "monitor": ["monitor/rtamt", "monitor/anew", "monitor/reelay"],
    "sampler": ["sampler", "sampler/one", "sampler/top-down", "sampler/known"],
    "rejection": ["rejection"],
    "icu": ["icu", "icu/top-down", "icu/best"],
    "audit": ["audit/step", "audit/replay", "audit/cores"],
    "scaling": ["scaling"],
    "hidden": ["hidden/grid", "hidden/dense"],
}


def whole(row: Row) -> bool:
    """Timings are numbers, and the fields of a row fit together."""
    timings = [timing for timing in (row.ours, row.theirs) if timing is not None]
    numbers = all(math.isfinite(t.median) and t.median > 0 and t.p99 > 0 and t.n > 0 for t in timings)
    return bool(timings) and numbers and (row.theirs is None) == (row.ratio is None)


@pytest.mark.parametrize("key", first(3, OURS))
def test_rows_run_beside_their_peers(key: str) -> None:
    for package in ("rtamt", "reelay"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[bench]' in a clone")
    rows = load()[key](Bench(Peers(), quick=True))
    assert [row.key for row in rows] == OURS[key]
    assert all(map(whole, rows))
    assert all(row.theirs is not None for row in rows if row.peer)
    assert all(row.met is not None for row in rows if row.limit is not None)


@pytest.mark.parametrize("key", first(1, ["recording", "icu"]))
def test_rows_run_without_peers(key: str) -> None:
    rows = load()[key](Bench(Peers(None), quick=True))
    assert [row.key for row in rows] == OURS[key]
    assert all(map(whole, rows))
    for row in rows:
        if row.peer:
            assert (row.ratio, row.met) == (None, None)
            assert "without peers" in row.note


def test_every_row_of_the_table_is_there() -> None:
    assert {*OURS, "process", "agents", "start"} <= set(load())


@pytest.mark.parametrize("key", ["process", "agents", "start"])
def test_what_needs_a_broker_and_its_harness_says_so(key: str) -> None:
    rows = load()[key](Bench(Peers(None), quick=True))
    assert rows
    assert all(row.ours is None and "without peers" in row.note for row in rows)


def test_a_missing_peer_is_reported_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "few_peers").mkdir()
    (tmp_path / "few_peers" / "needy.py").write_text("import no_such_package\n")
    (tmp_path / "few_peers" / "late.py").write_text("def make():\n    import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    peers = Peers("few_peers")
    for made in (peers.get("needy", "x"), peers.make("late", "make"), peers.make("needy", "x")):
        assert isinstance(made, Missing)
        assert made.reason == "no_such_package is not installed: pip install '.[bench]' in a clone"


def test_rtamt_and_reelay_do_what_their_rows_say() -> None:
    for package in ("rtamt", "reelay"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[bench]' in a clone")
    signal = [float(x) for x in np.where(np.random.default_rng(0).random(500) < 0.05, -1.0, 1.0)]
    least = [min(signal[max(0, n - 10) : n + 1]) for n in range(len(signal))]
    assert Reelay(signal).values() == [low > 0 for low in least]
    assert Rtamt(signal).values()[10:] == least[10:]


def test_ratios_and_targets() -> None:
    fast, slow, peer = Timing(1.0, 1.5, 9), Timing(4.0, 6.0, 9), "peer"
    faster = compare("a", "t", fast, slow, peer=peer, at_least=3.0)
    assert (faster.ratio, faster.met, faster.target) == (4.0, True, ">= 3x")
    costlier = compare("a", "t", slow, fast, peer=peer, at_most=3.0)
    assert (costlier.ratio, costlier.met, costlier.target) == (4.0, False, "<= 3x")
    assert compare("a", "t", slow, fast, peer=peer, at_least=0.5, aim=True).target == "aim: >= 0.5x"
    assert compare("a", "t", fast, slow, peer=peer).met is None
    assert absolute("a", "t", slow, at_most=3.0, target="<= 3 s").met is False


def test_other_values_are_an_error() -> None:
    agree("x", 1.0, 1.0 + 1e-10, 1e-9)
    with pytest.raises(DisagreementError, match=r"x: 1\.0 here, 2\.0 from the peer"):
        agree("x", 1.0, 2.0, 1e-9)
    with pytest.raises(DisagreementError):
        agree("x", math.nan, 2.0, 1e-9)


def test_work_is_done_in_turns() -> None:
    done: list[str] = []

    def work(name: str) -> Work:
        def block() -> int:
            done.append(name)
            return 2

        return Work(block, lambda: one_by_one(lambda: None, 3) if name == "b" else np.array([7.0]))

    first, _ = in_turns([work("a"), work("b")], 3)
    assert done == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert (first.n, first.p99) == (6, 7.0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["--alone", "--quick", "--row", "recording", "--row", "scaling"]
    main([*rows, "--json", str(tmp_path / "b.json"), "--now", "2026-01-02T03:04:05+00:00"])
    assert "recording" in capsys.readouterr().out
    document: dict[str, Any] = json.loads((tmp_path / "b.json").read_text())
    assert (document["v"], document["quick"], document["time"]) == (1, True, "2026-01-02T03:04:05+00:00")
    assert {"python", "numpy", "cpu", "cores"} <= set(document["machine"])
    assert [row["key"] for row in document["rows"]] == ["recording", "scaling"]
    assert {point["axis"] for point in document["rows"][1]["points"]} == {"states", "offset", "horizon", "agents"}
    with pytest.raises(ConfigError, match="no such row; there are kernel, recording"):
        main(["--row", "nothing"])


def test_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[bench]' in a clone")
    rows = load()["scaling"](Bench(Peers(None), quick=True))
    for name in ("cost.svg", "cost.png"):
        plot(rows, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1_000
    with pytest.raises(ConfigError, match=r"--plot .*cost\.strange"):
        plot(rows, tmp_path / "cost.strange")


def test_the_table_says_what_is_missing() -> None:
    rows = [compare("a", "t", Timing(1.0, 1.5, 9), Missing("no such peer"), peer="peer", at_least=3.0)]
    (cells,) = zip(*(column.cells for column in table(rows).columns), strict=True)
    assert notes(rows) == ["a: no such peer"]
    assert cells == ("a", "t", "1 s (1.5 s)", "peer", "-", ">= 3x", "-")
