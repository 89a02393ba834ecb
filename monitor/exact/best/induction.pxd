# The C types of `induction.py`.
cimport cython

from monitor.causal.row cimport choose, greedy
from monitor.exact.best.options cimport Acting, Options
from monitor.exact.best.rows cimport Posteriors, Row, prepare

cdef double INFINITY, TIE
cdef long long FIRST_SLOT


cdef class Held:
    cdef readonly const long long[::1] states, actions, outcomes, acted, along
    cdef readonly long long end
    cdef readonly bint repeats


cdef class Plan:
    cdef readonly const long long[:, :, ::1] target
    cdef readonly const unsigned char[:, ::1] rewarded
    cdef readonly const long long[::1] used, label_of
    cdef readonly const long long[:, ::1] policy, policy_of, age
    cdef readonly const long long[::1] start


cdef class Lanes:
    cdef readonly const long long[::1] spends, since, until
    cdef readonly const unsigned char[::1] holds, follows
    cdef readonly Py_ssize_t common


cdef class Decisions:
    cdef readonly double[:, ::1] held
    cdef readonly double[:, :, ::1] actions
    cdef readonly long long[:, :, :, ::1] chosen
    cdef readonly double[:, ::1] begun


cdef class Scratch:
    cdef readonly Row row
    cdef readonly double[::1] weight, mean
    cdef readonly long long[::1] picks
    cdef readonly double[::1] followed
    cdef readonly long long[:, ::1] active
    cdef readonly long long[::1] counts
    cdef readonly double[:, ::1] kept, best
    cdef readonly long long[:, ::1] best_action


@cython.locals(every=bint, best=bint)
cpdef void reach(
    Options options, Acting acting, Plan plan, Lanes lanes, Held held, unsigned char[:, ::1] reached, Scratch scratch
) noexcept nogil

@cython.locals(found=bint, count=Py_ssize_t)
cdef bint allow(Plan plan, Lanes lanes, Py_ssize_t level, Scratch scratch) noexcept nogil

@cython.locals(weight="double[::1]")
cdef void unchanged(
    Options options, Acting acting, Held held, Py_ssize_t level, Py_ssize_t state, Scratch scratch
) noexcept nogil

cdef void merge(Options options, Py_ssize_t state, double[::1] weight) noexcept nogil

cdef void pick(
    Options options, Plan plan, Lanes lanes, Py_ssize_t level, Py_ssize_t state, bint merged, Scratch scratch
) noexcept nogil

cdef bint is_picked(Plan plan, Lanes lanes, Py_ssize_t level, Py_ssize_t action, Scratch scratch) noexcept nogil

@cython.locals(
    now=Py_ssize_t, first="long long", last="long long", along="long long", decided=bint, observed="double[::1]",
    ahead="double[:, :, ::1]", here="double[:, :, ::1]"
)
cpdef Py_ssize_t induct(
    Options options, Posteriors posteriors, Acting acting, Plan plan, Lanes lanes, Held held,
    const unsigned char[:, ::1] reached, double[:, :, :, ::1] buffers, Decisions decisions,
    long long kind, bint greatest, bint largest, Scratch scratch
) noexcept nogil

cdef void stay(
    Options options, Plan plan, Lanes lanes, Py_ssize_t level, Py_ssize_t state, Py_ssize_t along,
    double[:, :, ::1] ahead, double[:, :, ::1] here, Decisions decisions
) noexcept nogil

@cython.locals(
    merged=bint, certain=bint, every=bint, gains=bint, point=bint, needed=Py_ssize_t,
    weight="double[::1]", mean="double[::1]", kept="double[:, ::1]", best="double[:, ::1]",
    best_action="long long[:, ::1]"
)
cdef void decide(
    Options options, Posteriors posteriors, Acting acting, Plan plan, Lanes lanes, Held held, Py_ssize_t level,
    Py_ssize_t state, Py_ssize_t along, bint decided, double[:, :, ::1] ahead, double[:, :, ::1] here,
    Decisions decisions, long long kind, bint greatest, bint largest, Scratch scratch
) noexcept nogil

cdef bint exceeds(double value, double other) noexcept nogil

@cython.locals(base=double, one=double, two=double, three=double, four=double)
cdef void row_means(
    Row row, double reward, Py_ssize_t length, bint point, long long target, bint earns, double[:, :, ::1] ahead,
    Py_ssize_t needed, bint greatest, double[::1] mean
) noexcept nogil
