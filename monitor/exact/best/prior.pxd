# The C types of `prior.py`.
cimport cython

from monitor.exact.best.options cimport Options

cdef double INFINITY, TIE
cdef long long FIRST_SLOT


cpdef void backup(
    Options options, const long long[::1] label_of, const long long[::1] targets, bint rewarded,
    const double[:, ::1] ahead, long long end, bint largest, const long long[::1] fixed,
    double[::1] means, double[::1] values, long long[::1] choices
) noexcept nogil

cdef double nominal_weight(Options options, Py_ssize_t state, Py_ssize_t action) noexcept nogil

@cython.locals(total=double)
cdef double mean_of(
    Options options, Py_ssize_t state, Py_ssize_t action, long long target, bint rewarded,
    const double[:, ::1] ahead, long long end
) noexcept nogil
