# The C types of `guaranteed.py`.
cimport cython

from monitor.causal.interval_row cimport extreme_given, least_probability
from monitor.causal.row cimport RowMemory, choose, greedy
from monitor.exact.forward.counterfactual_rows cimport Dynamics, phase_at

cdef long long TRUE, FIRST_COLUMN

ctypedef (long long, long long, long long, double) Seen


cdef class RowBounds:
    cdef readonly const long long[::1] indptr, successors
    cdef readonly const double[::1] lower, upper, extra


cdef class IntervalProblem:
    cdef readonly Dynamics dynamics
    cdef readonly RowBounds target, observed
    cdef readonly const double[::1] extremes
    cdef readonly const long long[:, :, ::1] ranges
    cdef readonly const long long[:, ::1] transitions
    cdef readonly const int[::1] label_of
    cdef readonly const unsigned char[:, ::1] alive
    cdef readonly const double[:, :, ::1] unknown
    cdef readonly long long elsewhere
    cdef readonly double[::1] choice, low, high
    cdef readonly RowMemory memory


@cython.locals(seen=Seen, ahead="double[:, :, ::1]", here="double[:, :, ::1]")
cpdef (double, double) interval(
    IntervalProblem problem, const long long[::1] states, const long long[::1] actions,
    unsigned char[:, :, ::1] reached, double[:, :, :, ::1] values
) noexcept nogil

cpdef void level(
    IntervalProblem problem, long long offset, const unsigned char[:, ::1] reached, const double[:, :, ::1] ahead,
    double[:, :, ::1] here
) noexcept nogil

cdef Seen observed_at(
    IntervalProblem problem, const long long[::1] states, const long long[::1] actions, long long offset
) noexcept nogil

cdef double least_observed(RowBounds rows, long long row, long long successor) noexcept nogil

@cython.locals(policy="const double[::1]")
cdef void choose_actions(IntervalProblem problem, long long offset, Seen seen, long long state) noexcept nogil

cdef long long transition_at(
    IntervalProblem problem, long long offset, long long column, long long state
) noexcept nogil

cdef bint is_certain(IntervalProblem problem, Seen seen, long long state, long long action) noexcept nogil

@cython.locals(rewarded=bint, certain=bint, lower="const double[::1]", upper="const double[::1]")
cdef (double, double) pair_values(
    IntervalProblem problem, Seen seen, long long transition, long long state, long long action,
    const double[:, :, ::1] ahead
) noexcept nogil

cdef void spread(
    IntervalProblem problem, long long offset, Seen seen, const unsigned char[:, ::1] reached,
    unsigned char[:, ::1] following
) noexcept nogil

cdef void fill(
    IntervalProblem problem, long long offset, Seen seen, const unsigned char[:, ::1] reached,
    const double[:, :, ::1] ahead, double[:, :, ::1] here
) noexcept nogil
