# The C types of `options.py`.
cimport cython


cdef class Options:
    cdef readonly const long long[::1] indptr, successors
    cdef readonly const double[::1] probabilities
    cdef readonly const double[:, ::1] rewards
    cdef readonly const double[::1] extra
    cdef readonly const long long[::1] alike, actions
    cdef readonly const double[:, ::1] choices


cdef class Acting:
    cdef readonly const long long[:, ::1] actions
    cdef readonly const double[:, :, ::1] choices
    cdef readonly const long long[::1] row


@cython.locals(same=bint)
cpdef void find_alike(
    const long long[::1] indptr, const long long[::1] successors, const double[::1] probabilities,
    const double[:, ::1] rewards, const double[::1] extra, long long[::1] alike
) noexcept nogil
