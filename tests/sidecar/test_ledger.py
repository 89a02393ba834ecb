"""The checksum over what a database holds: the same for the same rows, whatever happened before, and else another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.sidecar.store.ledger import BEGINNING, Ledger, link

ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["snapshot", "outbox"]), st.one_of(st.integers(0, 3), st.text(max_size=3))),
    st.binary(max_size=3),
    max_size=6,
)


def total(rows: dict[tuple[str, int | str], bytes]) -> bytes:
    ledger = Ledger()
    for (table, key), content in rows.items():
        ledger.put(table, key, content)
    return ledger.total


def told(rows: dict[tuple[str, int | str], bytes]) -> dict[tuple[str, str], bytes]:
    """A number and a text that reads like it are one key: a table has keys of one kind."""
    return {(table, str(key)): content for (table, key), content in rows.items()}


@given(ROWS, ROWS)
def test_equal_rows_have_equal_checksums_whatever_came_before(
    before: dict[tuple[str, int | str], bytes], after: dict[tuple[str, int | str], bytes]
) -> None:
    ledger = Ledger()
    for (table, key), content in before.items():
        ledger.put(table, key, content)
    for table, key in before.keys() - after.keys():
        ledger.drop(table, [key, "never there"])
    for (table, key), content in reversed(after.items()):
        ledger.put(table, key, content)
    assert ledger.total == total(after)
    if len(told(before)) == len(before) and len(told(after)) == len(after):
        assert (total(before) == total(after)) == (told(before) == told(after))


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_a_chain_tells_apart_what_was_chained(one: list[bytes], other: list[bytes]) -> None:
    def chained(contents: list[bytes]) -> bytes:
        chain = BEGINNING
        for number, content in enumerate(contents):
            chain = link(chain, number, content)
        return chain

    assert (chained(one) == chained(other)) == (one == other)
