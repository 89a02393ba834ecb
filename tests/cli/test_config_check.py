"""`cfmon config check`: every mistake is told at once, and what is opened at start is tried."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.exact.best import values
from monitor.runtime import query
from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.sinks.logbook import log_watched
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.web.http import make_app
from monitor.sidecar.web.server import HttpServer
from tests.sidecar.alarms import _corridor
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.test_http import World
from tests.sidecar.watched import watched

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path, _corridor(0.5))


def changed(project: Path, *pairs: tuple[str, str]) -> str:
    text = CONFIG
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    project.write_text(text)
    return str(project)


def test_every_mistake_is_reported(project: Path, cfmon: Run) -> None:
    wrong = changed(
        project,
        ("careful.yaml", "none.yaml"),
        ("P>=0.8 [ G<=3", "P>=0.8 [ G<="),
        ("P=? [ F<=3", "P=? [ F<="),
        ("model: model.npz", "model: model.npz\nmodels: {icy: none.npz}"),
    )
    code, out, err = cfmon("config", "check", wrong)
    assert (code, out) == (2, "")
    for what in ("models.icy", "policies.careful", "formulas[0].formula", "formulas[1].formula"):
        assert what in err
    assert err.count("config.yaml, line") == 4  # a formula about what could not be read is no mistake of its own


def test_names_that_do_not_fit_are_reported_together(project: Path, cfmon: Run) -> None:
    wrong = changed(project, ("name: chance", "name: watch"), ("nominal: rash", "rash: rash"))
    _, _, err = cfmon("config", "check", wrong)
    assert "`nominal`" in err
    assert "'watch' is used twice" in err


def test_a_port_that_is_taken_is_reported(project: Path, cfmon: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = cfmon("config", "check", changed(project, ("127.0.0.1:0", f"127.0.0.1:{port}")))
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert "http.listen" in err


def test_a_monitor_that_runs_already_is_no_mistake(project: Path, cfmon: Run) -> None:
    server = HttpServer(make_app(World(StatusView(watched([]))).sources), HttpConfig(listen="127.0.0.1:0"))
    server.start()
    try:
        listen = server.url.removeprefix("http://")
        code, out, err = cfmon("config", "check", changed(project, ("127.0.0.1:0", listen)))
    finally:
        server.stop()
    assert (code, err) == (0, "")
    assert f"a monitor already listens on {listen}" in out


def test_a_store_that_cannot_be_written_is_reported(project: Path, cfmon: Run) -> None:
    for place in ("/proc/cfmon/cfmon.sqlite", "model.npz/cfmon.sqlite"):
        code, _, err = cfmon("config", "check", changed(project, ("var/cfmon.sqlite", place)))
        assert (code, "store.path" in err, "cannot be written to" in err) == (2, True, True), err


def test_trying_leaves_no_trace(project: Path, cfmon: Run) -> None:
    before = sorted(project.parent.iterdir())
    assert cfmon("config", "check", changed(project))[0] == 0
    assert sorted(project.parent.iterdir()) == before


def test_a_comparison_that_looks_turned_around_is_noted_before_and_at_the_start(
    project: Path, cfmon: Run, caplog: pytest.LogCaptureFixture
) -> None:
    config = changed(project, ("P>=0.8 [ G<=3", "P<=0.8 [ G<=3"))
    code, out, _ = cfmon("config", "check", config)
    note = 'watch: P<=0.8 [ G<=3 !"lost" ] is missed where "lost" is avoided with a probability above 0.8; if "lost" is'
    assert code == 0
    assert out.count(f"  note      {note} to be avoided, write P>=0.8") == 1
    with caplog.at_level("WARNING"):
        log_watched(assemble(load_config(project, {})))
    assert [record.getMessage().startswith(f"formula {note}") for record in caplog.records] == [True]


def test_what_decisions_cost_is_noted_if_it_is_much(project: Path, cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    config = changed(project, ("careful@2", "best@2"))
    assert "multiplications" not in cfmon("config", "check", config)[1]
    monkeypatch.setattr(query, "MANY", 100)
    products = (1 + 2 + 3) * len(_corridor(0.5).probabilities)  # obligations of G<=3 on three pairs
    note = (
        f"watch: decisions made for its goal cost up to {products} multiplications at each step (limit 2,000,000,000)"
    )
    assert note in cfmon("config", "check", config)[1]
    monkeypatch.setattr(values, "MAX_PRODUCTS", 100)
    code, _, err = cfmon("config", "check", config)
    assert code == 2
    assert "limit MAX_PRODUCTS, 100" in err
