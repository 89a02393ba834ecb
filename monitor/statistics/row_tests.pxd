# The C types of `row_tests.py`.
cimport cython
from monitor.statistics.betting_odds cimport AdaptiveBet, Odds, TransitionOdds
from monitor.statistics.late_bets cimport idle_after, part_of

cdef double MISSING, MOST_WEALTH


@cython.final
cdef class RowTest:
    cdef readonly long long visits, impossible
    cdef readonly double learned, missing
    cdef double _part

    cdef double visit(self) noexcept


cdef class RowTests:
    cdef readonly long long tested
    cdef Odds _odds
    cdef AdaptiveBet _learner
    cdef double _calm, _near
    cdef long long _most
    cdef dict _tests
    cdef set _suspects

    cpdef step(self, TransitionOdds found)
    cpdef contradict(self, long long row)
    @cython.locals(test=RowTest)
    cdef RowTest _test(self, long long row)
    @cython.locals(test=RowTest)
    cpdef double wealth(self, long long row) except? -1
