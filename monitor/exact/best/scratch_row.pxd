# The C types of `scratch_row.py`.
cimport cython

from monitor.causal.row cimport RowMemory, bound, reweigh_within
from monitor.exact.best.options cimport Options

cdef long long EXACT, STABLE


cdef class Posteriors:
    cdef readonly double[:, ::1] weights
    cdef readonly unsigned char[:, ::1] filled
    cdef readonly const long long[::1] slot_of


cdef class ScratchRow:
    cdef readonly long long[::1] successors
    cdef readonly double[::1] weights, upper, extra, values, observed
    cdef readonly RowMemory memory


@cython.locals(at=Py_ssize_t, length=Py_ssize_t, kept=bint, p="double[::1]", q="double[::1]")
cpdef (double, Py_ssize_t, bint) prepare(
    Options options, Posteriors posteriors, Py_ssize_t level, Py_ssize_t state, Py_ssize_t action, long long outcome,
    bint certain, long long kind, ScratchRow row
) noexcept nogil

@cython.locals(count=Py_ssize_t, place=Py_ssize_t, total=Py_ssize_t, rest=double, p="double[::1]", q="double[::1]", after="double[::1]")
cpdef void condition(ScratchRow row, Py_ssize_t length, Py_ssize_t at, long long outcome) noexcept nogil
