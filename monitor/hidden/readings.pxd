# The C types of `readings.py`.
cimport cython

from monitor.exact.hash_table cimport find_slot


cdef class Readings:
    cdef readonly object reader, everything
    cdef readonly bint sees_state, listed
    cdef readonly long long width, memories, count
    cdef readonly long long[::1] keys, values
    cdef readonly long long[::1] after
    cdef readonly double[:, ::1] choice

@cython.locals(key=longlong, slot=longlong)
cpdef long long find_reading(Readings policy, long long memory, long long read) noexcept nogil

@cython.locals(action=longlong, same=bint)
cpdef bint same_reading(Readings policy, long long one, long long other) noexcept nogil
