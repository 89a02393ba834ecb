# The C types of `interval_row.py`.
from monitor.causal.row cimport RowMemory, greedy, sort_pairs

cdef double TINY


cpdef double least_probability(const double[::1] lower, const double[::1] upper, Py_ssize_t at) noexcept nogil

cpdef double extreme_given(
    const double[::1] lower, const double[::1] upper, double observed, const double[::1] values, bint largest,
    RowMemory memory
) noexcept nogil
