# The C types of `model_betting.py`.
from libc cimport math
from monitor.statistics.betting_odds cimport AdaptiveBet, Odds, TransitionOdds
from monitor.statistics.late_bets cimport idle_after, part_of
from monitor.statistics.shared_tests cimport SharedTests

cdef double RARE, OFTEN, MOST_HIGHEST
cdef long long OWN_BETS


cdef class ModelTest:
    cdef readonly bint rejected
    cdef readonly long long transitions, number
    cdef readonly AdaptiveBet own
    cdef SharedTests _shared
    cdef Odds _odds
    cdef long long _bets
    cdef double _enough, _cap, _near
    cdef double _learned, _together, _flatter, _sharper, _rare, _often, _part, _highest
    cdef double _rare_factor, _often_factor, _rejected_at
    cdef bint _capped, _ended

    cpdef bint covers(self, long long row) noexcept
    cpdef step(self, long long row, long long successor)
    cpdef contradict(self, row=*)
    cdef settle(self, TransitionOdds found)
    cdef double _begin(self) noexcept
    cdef double _wealth_of_bets(self) noexcept
    cdef double _wealth(self) noexcept
    cdef _look(self)
