# The C types of `bellman.py`.

cpdef void _means_over_rows(
    const long long[::1] indptr, const long long[::1] successors, const double[::1] probabilities,
    const long long[::1] states, const long long[::1] actions, const unsigned char[::1] chosen, Py_ssize_t width,
    const double[::1] ahead, double[::1] out
) noexcept nogil
