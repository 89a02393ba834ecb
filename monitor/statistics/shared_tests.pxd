# The C types of `shared_tests.py`.
cimport cython
from monitor.statistics.betting_odds cimport AdaptiveBet, Odds
from monitor.statistics.row_tests cimport RowTests


@cython.final
cdef class SharedTests:
    cdef readonly Odds odds
    cdef readonly AdaptiveBet learner
    cdef readonly RowTests rows
    cdef public long long entered, transitions, observed

    cpdef long long enter(self) noexcept
