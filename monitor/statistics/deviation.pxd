# The C types of `deviation.py`.
from libc cimport math


cdef long long WINDOW, LEAST
cdef double CHANCE


cdef class Deviation:
    cdef readonly double fraction
    cdef readonly long long steps
    cdef double _excess, _variance
    cdef long long _next
    cdef object _held
    cdef double[::1] _ring

    cpdef push(self, double excess, double variance)
    cdef list _in_order(self, long long column)
    cdef _sum(self)
    cdef _compare(self)
