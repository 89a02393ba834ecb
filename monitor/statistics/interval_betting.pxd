# The C types of `interval_betting.py`.
from monitor.statistics.betting_odds cimport TransitionOdds
from monitor.statistics.interval_odds cimport IntervalOdds
from monitor.statistics.model_betting cimport ModelTest


cdef class IntervalModelTest(ModelTest):
    cdef IntervalOdds _intervals
    cdef double _given_rare_factor, _given_often_factor
    cdef long long _steps, _unrecorded

    cpdef bint covers(self, long long row) noexcept
    cpdef step(self, long long row, long long successor)
    cdef settle(self, TransitionOdds found)
    cdef double _bet_on_unrecorded(self, TransitionOdds found) noexcept
