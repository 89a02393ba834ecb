# The C types of `row.py`.
cimport cython

cdef double STABILITY_TOLERANCE
cdef Py_ssize_t FEW
cdef double INFINITY


cdef class RowMemory:  # the order of the dataclass fields, because Cython takes the order from here
    cdef readonly double[::1] keys
    cdef readonly long long[::1] order
    cdef readonly double[::1] p, q, after


cpdef (double, Py_ssize_t) align(
    const long long[::1] states, const double[::1] p, long long outcome, const long long[::1] target, double[::1] aligned
) noexcept nogil

cpdef void sort_pairs(double[::1] keys, long long[::1] order, Py_ssize_t count) noexcept nogil

@cython.locals(count=Py_ssize_t, overtaken=double, few=bint)
cpdef bint reweigh_within(
    const double[::1] p, const double[::1] q, double p_outcome, Py_ssize_t at,
    double[::1] result, long long[::1] shared, double[::1] breaks
) noexcept nogil

cpdef void choose(
    const double[::1] observed, Py_ssize_t action, const double[::1] target, double[::1] result, RowMemory memory
) noexcept nogil

cpdef void bound(
    const double[::1] p, const double[::1] q, double p_outcome, Py_ssize_t at, bint stable,
    double[::1] lower, double[::1] upper
) noexcept nogil

cpdef double greedy(
    const double[::1] lower, const double[::1] upper, const double[::1] values, bint largest,
    double[::1] keys, long long[::1] order
) noexcept nogil
