"""Numbers counted plainly read back as Prometheus reads them, also while others are being written."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from monitor.sidecar.sinks.exposition import SeriesFamily


def read(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values -> number, through the parser of another's making."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False), max_size=8))
def test_whatever_is_set_reads_back(numbers: dict[tuple[str, ...], float]) -> None:
    series = SeriesFamily("gauge", {"cfmon_one": "About."}, "agent", "formula")
    for labels, value in numbers.items():
        series.set(labels, 1.0)
        series.set(labels, value)
    assert read(series.text()) == {("cfmon_one", *labels): value for labels, value in numbers.items()}


def test_several_names_share_their_labels_and_nan_is_written_as_prometheus_does() -> None:
    series = SeriesFamily("gauge", {"cfmon_one": "First.", "cfmon_two": "Second."}, "agent")
    series.set(("ada",), 0.25, float("nan"))
    assert series.text() == (
        "# HELP cfmon_one First.\n# TYPE cfmon_one gauge\n"
        'cfmon_one{agent="ada"} 0.25\n'
        "# HELP cfmon_two Second.\n# TYPE cfmon_two gauge\n"
        'cfmon_two{agent="ada"} NaN\n'
    )


def test_a_counter_counts_from_nothing_and_can_be_taken_back() -> None:
    series = SeriesFamily("counter", {"cfmon_seen_total": "Seen."}, "agent")
    series.inc(("ada",), 0)
    assert read(series.text()) == {("cfmon_seen_total", "ada"): 0.0}
    series.inc(("ada",))
    series.inc(("ida",), 3)
    assert read(series.text()) == {("cfmon_seen_total", "ada"): 1.0, ("cfmon_seen_total", "ida"): 3.0}
    series.remove(("ada",))
    series.remove(("nobody",))
    assert read(series.text()) == {("cfmon_seen_total", "ida"): 3.0}


@pytest.mark.parametrize("rounds", [200])
def test_reading_goes_on_while_another_thread_writes(rounds: int) -> None:
    series = SeriesFamily("gauge", {"cfmon_one": "One.", "cfmon_two": "Always the same as one."}, "agent")
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            series.set((f"a{n % 50}",), n, n)
            series.remove((f"a{(n + 25) % 50}",))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(rounds):
            numbers = read(series.text())
            for (name, agent), value in numbers.items():
                assert name in {"cfmon_one", "cfmon_two"}
                assert numbers["cfmon_one", agent] == numbers["cfmon_two", agent] == value
    finally:
        stop.set()
        writer.join()
