# The C types of `induction.py`.
cimport cython

from monitor.causal.row cimport choose, greedy
from monitor.exact.best.options cimport Acting, Options
from monitor.exact.best.scratch_row cimport Posteriors, ScratchRow, prepare

cdef double INFINITY, TIE
cdef long long FIRST_SLOT


cdef class HeldPath:
    cdef readonly const long long[::1] states, actions, outcomes, acted, along
    cdef readonly long long end
    cdef readonly bint repeats


cdef class BackwardProblem:
    cdef readonly const long long[:, :, ::1] target
    cdef readonly const unsigned char[:, ::1] rewarded
    cdef readonly const long long[::1] used, label_of
    cdef readonly const long long[:, ::1] policy, policy_of, age
    cdef readonly const long long[::1] start


cdef class Lanes:
    cdef readonly const long long[::1] spends, since, until
    cdef readonly const unsigned char[::1] holds
    cdef readonly Py_ssize_t common
    cdef readonly bint follows


cdef class DecisionValues:
    cdef readonly double[:, ::1] held
    cdef readonly double[:, :, ::1] actions
    cdef readonly long long[:, :, :, ::1] chosen
    cdef readonly double[:, ::1] begun


cdef class Scratch:
    cdef readonly ScratchRow row
    cdef readonly double[::1] weight, mean
    cdef readonly long long[::1] picks
    cdef readonly double[::1] followed
    cdef readonly long long[:, ::1] active
    cdef readonly long long[::1] counts
    cdef readonly double[:, ::1] kept, best
    cdef readonly long long[:, ::1] best_action


cdef class Task:
    cdef readonly Options options
    cdef readonly Posteriors posteriors
    cdef readonly Acting acting
    cdef readonly BackwardProblem plan
    cdef readonly Lanes lanes
    cdef readonly HeldPath held
    cdef readonly DecisionValues decisions
    cdef readonly Scratch scratch
    cdef readonly unsigned char[:, ::1] reached
    cdef readonly double[:, :, :, ::1] buffers
    cdef readonly long long kind
    cdef readonly bint greatest, largest


@cython.locals(
    now=Py_ssize_t, first="long long", last="long long", along="long long", decided=bint, observed="double[::1]",
    successors="const long long[::1]", ahead="double[:, :, ::1]", here="double[:, :, ::1]"
)
cpdef Py_ssize_t induct(Task task) noexcept nogil

@cython.locals(
    every=bint, alike="const long long[::1]", indptr="const long long[::1]", weight="double[::1]"
)
cdef void reach(Task task) noexcept nogil

@cython.locals(
    found=bint, count=Py_ssize_t, spends="const long long[::1]", since="const long long[::1]",
    until="const long long[::1]"
)
cdef bint allow(Task task, Py_ssize_t level) noexcept nogil

@cython.locals(weight="double[::1]", choices="const double[:, :, ::1]")
cpdef void unchanged(Task task, Py_ssize_t level, Py_ssize_t state) noexcept nogil

cdef void merge(Options options, Py_ssize_t state, double[::1] weight) noexcept nogil

cdef void pick(Task task, Py_ssize_t level, Py_ssize_t state, bint merged) noexcept nogil

cdef bint is_picked(Task task, Py_ssize_t level, Py_ssize_t action) noexcept nogil

cdef void stay(
    Task task, Py_ssize_t level, Py_ssize_t state, Py_ssize_t along, double[:, :, ::1] ahead, double[:, :, ::1] here
) noexcept nogil

@cython.locals(
    merged=bint, certain=bint, every=bint, gains=bint, point=bint, needed=Py_ssize_t,
    weight="double[::1]", mean="double[::1]", picks="long long[::1]", followed="double[::1]",
    kept="double[:, ::1]", best="double[:, ::1]", best_action="long long[:, ::1]",
    values="double[:, :, ::1]", chosen="long long[:, :, :, ::1]"
)
cdef void decide(
    Task task, Py_ssize_t level, Py_ssize_t state, Py_ssize_t along, bint decided,
    double[:, :, ::1] ahead, double[:, :, ::1] here
) noexcept nogil

cdef bint exceeds(double value, double other) noexcept nogil

@cython.locals(base=double, one=double, two=double, three=double, four=double)
cdef void row_means(
    ScratchRow row, double reward, Py_ssize_t length, bint point, long long target, bint earns, double[:, :, ::1] ahead,
    Py_ssize_t needed, bint greatest, double[::1] mean
) noexcept nogil
