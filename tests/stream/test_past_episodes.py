"""Which episodes are over: thousands of them, on pages that are written once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import InputError
from monitor.stream.past_episodes import PAGE, PAGES, PastEpisodes


def filled(episodes: int) -> PastEpisodes:
    past = PastEpisodes()
    for n in range(episodes):
        past.add(n, float(n))
    return past


def test_thousands_are_known_again_and_nothing_else() -> None:
    past = filled(PAGE * PAGES - 1)
    assert len(past) == PAGE * PAGES - 1 == 8191
    assert all(n in past for n in range(8191))
    assert not any(n in past for n in range(8191, 10_000))
    assert not any(str(n) in past for n in range(8191))  # "1" is another episode than 1
    assert past.horizon == -math.inf


def test_what_is_forgotten_is_known_by_its_time() -> None:
    past = filled(PAGE * PAGES)
    assert past.horizon == PAGE - 1.0
    assert 0 not in past
    assert PAGE in past


@given(st.integers(0, 3 * PAGE), st.integers(0, 3))
def test_it_comes_back_from_plain_data_and_its_pages(episodes: int, more: int) -> None:
    past = PastEpisodes()
    kept: dict[int, bytes | None] = {}
    for n in range(episodes):
        past.add(n, float(n))
        if n % 400 == 0:
            kept |= past.pages()
    kept |= past.pages()
    assert past.pages() == {}
    again = PastEpisodes.load(past.dump(), {number: page for number, page in kept.items() if page is not None})
    for n in range(episodes, episodes + more):
        past.add(n, float(n))
        again.add(n, float(n))
    assert again.dump() == past.dump()
    assert again.pages(everything=True) == past.pages(everything=True)


def test_a_page_that_goes_is_reported_once() -> None:
    past = filled(PAGE * PAGES - 1)
    assert set(past.pages()) == set(range(PAGES - 1))
    past.add("last", 0.0)
    told = past.pages()
    assert told[0] is None
    assert told[PAGES - 1] is not None
    assert set(told) == {0, PAGES - 1}


@pytest.mark.parametrize("pages", [{}, {0: b"too short"}])
def test_without_its_pages_it_is_refused(pages: dict[int, bytes]) -> None:
    with pytest.raises(InputError, match="page 0") as caught:
        PastEpisodes.load(filled(PAGE).dump(), pages)
    assert caught.value.reason == "bad_snapshot"
