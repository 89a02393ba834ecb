"""The log: one line an entry, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from monitor.sidecar.config.settings import LoggingConfig
from monitor.sidecar.log import set_up_logging

LOG = logging.getLogger("monitor.test")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("monitor", "uvicorn.error")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LoggingConfig())
    LOG.debug("not shown")
    LOG.warning("lost %s", "mqtt://localhost:1883")
    time, _, rest = capsys.readouterr().err.partition(" ")
    assert rest == "WARNING monitor.test: lost mqtt://localhost:1883\n"
    assert time.endswith("+00:00")


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LoggingConfig(format="json", level="debug"))
    try:
        int("inside")
    except ValueError:
        LOG.exception("a bug\nin two lines")
    LOG.debug("shown")
    first, second = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (first["level"], first["logger"], first["message"]) == ("error", "monitor.test", "a bug\nin two lines")
    assert "ValueError: invalid literal" in first["error"]
    assert second["message"] == "shown"
    assert "error" not in second
