# The C types of `noise.py`.
cimport cython
from libc cimport math

cdef unsigned long long LOW
cdef double CELL, INFINITY


@cython.locals(
    low="unsigned long long", m0="unsigned long long", m1="unsigned long long", w0="unsigned long long",
    w1="unsigned long long", zero="unsigned long long", two="unsigned long long"
)
cpdef (unsigned long long, unsigned long long, unsigned long long, unsigned long long) philox(
    unsigned long long c0, unsigned long long c1, unsigned long long c2, unsigned long long c3,
    unsigned long long k0, unsigned long long k1
) noexcept nogil

@cython.locals(even="long long", odd="long long")
cdef (double, double) _pair(
    unsigned long long seed, unsigned long long step, long long particle, long long block
) noexcept nogil

@cython.locals(held="long long", particle="long long", key="long long", fresh=bint)
cpdef void _uniforms(
    unsigned long long seed, unsigned long long step, const long long[::1] particles, const long long[::1] keys,
    double[:, ::1] drawn
) noexcept nogil

@cython.locals(held="long long", particle="long long", key="long long", fresh=bint, winner="long long", here=Py_ssize_t)
cpdef void _race(
    unsigned long long seed, unsigned long long step, const long long[::1] particles,
    const long long[::1] begin, const long long[::1] end, const long long[::1] keys, const double[::1] probabilities,
    const long long[::1] seen, const double[::1] weights, long long outcome, double p_outcome, long long[::1] won
) noexcept nogil
