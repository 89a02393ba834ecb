# The C types of `model_betting.py`.
from libc cimport math
from monitor.statistics.betting_odds cimport Learner, Odds, Transition
from monitor.statistics.late_bets cimport idle_after, part_of
from monitor.statistics.shared_tests cimport Shared

cdef double RARE, OFTEN, MOST_HIGHEST
cdef long long OWN_BETS


cdef class ModelTest:
    cdef readonly bint doubted
    cdef readonly long long transitions, number
    cdef readonly Learner own
    cdef Shared _shared
    cdef Odds _odds
    cdef long long _bets
    cdef double _enough, _cap, _near
    cdef double _learned, _together, _flatter, _sharper, _rare, _often, _part, _highest
    cdef double _calm_rare, _calm_often, _rejected
    cdef bint _capped, _ended

    cpdef bint covers(self, long long row) noexcept
    cpdef step(self, long long row, long long successor)
    cpdef contradict(self, row=*)
    cdef settle(self, Transition found)
    cdef double _begin(self) noexcept
    cdef double _staked(self) noexcept
    cdef double _wealth(self) noexcept
    cdef _look(self)
