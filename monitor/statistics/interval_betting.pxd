# The C types of `interval_betting.py`.
from monitor.statistics.betting_odds cimport Transition
from monitor.statistics.interval_odds cimport IntervalOdds
from monitor.statistics.model_betting cimport ModelTest


cdef class IntervalModelTest(ModelTest):
    cdef IntervalOdds _intervals
    cdef double _given_rare, _given_often
    cdef long long _steps, _unrecorded

    cpdef bint covers(self, long long row) noexcept
    cpdef step(self, long long row, long long successor)
    cdef settle(self, Transition found)
    cdef double _bet_on_unrecorded(self, Transition found) noexcept
