# The C types of `interval_odds.py`.
cimport cython
from libc cimport math
from monitor.statistics.betting_odds cimport AdaptiveBet, Odds, TransitionOdds


cdef class IntervalOdds(Odds):
    cdef readonly const long long[::1] unrecorded
    cdef readonly double[::1] bet
    cdef const double[::1] _lower, _upper
    cdef double[:, ::1] _turns

    cpdef AdaptiveBet learner(self, long long most, memory=*)
    @cython.locals(known=double)
    cpdef double most(self, long long row) noexcept
    cdef double pays(self, long long row, long long index) noexcept
    cdef long long index_of(self, long long row, long long successor) noexcept
    cdef TransitionOdds transition(self, long long row, long long index)


cdef class IntervalLearner(AdaptiveBet):
    cdef IntervalOdds _intervals

    cpdef double ratio(self, TransitionOdds found) except? -1


@cython.locals(total=double, within=bint)
cpdef double against(
    const double[::1] bet, const double[::1] lower, const double[::1] upper, Py_ssize_t place, double[:, ::1] turns
) noexcept nogil

@cython.locals(known=double, reached=double, slope=double, missing=double)
cdef double _scale(
    const double[::1] bet, const double[::1] lower, const double[::1] upper, double[:, ::1] turns
) noexcept nogil

@cython.locals(gap=Py_ssize_t)
cdef void _sort(double[:, ::1] turns, Py_ssize_t count) noexcept nogil
