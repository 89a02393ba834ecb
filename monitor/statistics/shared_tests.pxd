# The C types of `shared_tests.py`.
cimport cython
from monitor.statistics.betting_odds cimport Learner, Odds
from monitor.statistics.row_tests cimport RowTests


@cython.final
cdef class Shared:
    cdef readonly Odds odds
    cdef readonly Learner learner
    cdef readonly RowTests rows
    cdef public long long entered, transitions, observed

    cpdef long long enter(self) noexcept
