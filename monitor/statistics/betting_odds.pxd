# The C types of `betting_odds.py`.
cimport cython
from libc cimport math


@cython.final
cdef class TransitionOdds:
    cdef readonly long long row, index
    cdef readonly double odds, flatter, sharper
    cdef readonly bint given


cdef class Odds:
    cdef readonly const long long[::1] starts, successors
    cdef readonly const double[::1] probabilities
    cdef readonly bint dense
    cdef long long _mask
    cdef list _kept

    cpdef AdaptiveBet learner(self, long long most, memory=*)
    @cython.locals(found=TransitionOdds)
    cdef TransitionOdds at(self, long long row, long long index)
    cpdef long long row_of(self, long long index) noexcept
    cdef long long index_of(self, long long row, long long successor) noexcept
    @cython.locals(roots=double, squares=double)
    cdef TransitionOdds transition(self, long long row, long long index)


@cython.final
cdef class PlaceCounts:
    cdef readonly long long size
    cdef long long[::1] _all
    cdef dict _put

    cdef long long get(self, long long place) noexcept
    cdef put(self, long long place, long long count)
    cdef clear(self)
    cdef dict by_place(self)


cdef class AdaptiveBet:
    cdef readonly double prior
    cdef readonly long long memory
    cdef Odds _odds
    cdef long long _most
    cdef PlaceCounts _seen, _steps

    cpdef double ratio(self, TransitionOdds found) except? -1
    cdef double settle(self, TransitionOdds found) except? -1
    cpdef dict seen(self, long long row)
    cpdef dict by_row(self)
    cpdef load(self, counts)
    @cython.locals(left="long long")
    cdef _halve(self, long long row)


cdef long long _newest(const long long[::1] ascending, long long number, long long low, long long high) noexcept nogil
