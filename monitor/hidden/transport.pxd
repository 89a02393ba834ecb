# The C types of `transport.py`.
cimport cython

cdef double TINY, INFINITY


cdef class Transport:
    cdef readonly double[::1] supply, out, left, spread, row_far, demand, into, lacking, column_far
    cdef readonly long long[::1] row_from, row_done, column_from, column_done
    cdef readonly double[:, ::1] cost, flow


@cython.locals(
    supply="double[::1]", demand="double[::1]", cost="double[:, ::1]", out="double[::1]", into="double[::1]",
    total=double, least=double, reduced=double, row=longlong, i=longlong, j=longlong, end=longlong
)
cpdef double cheapest(Transport problem, long long rows, long long columns) noexcept nogil

@cython.locals(
    row_far="double[::1]", column_far="double[::1]", out="double[::1]", into="double[::1]",
    row_done="long long[::1]", column_done="long long[::1]", cost="double[:, ::1]", flow="double[:, ::1]",
    end=longlong, far=double, row=longlong, column=longlong, length=double, i=longlong, j=longlong
)
cdef long long find_path(Transport problem, long long source, long long rows, long long columns) noexcept nogil

@cython.locals(amount=double, column=longlong, row=longlong)
cdef void send(Transport problem, long long end) noexcept nogil
