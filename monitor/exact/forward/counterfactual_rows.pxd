# The C types of `counterfactual_rows.py`.
cimport cython

from monitor.causal.row cimport bound, choose, reweigh_within
from monitor.exact.forward.row_table cimport RowTable
from monitor.exact.hash_table cimport find_slot

cdef long long EXACT, STABLE, FULL, NO_END


cdef class Dynamics:
    cdef readonly const long long[::1] counterfactual_row_indptr, counterfactual_row_successors
    cdef readonly const double[::1] counterfactual_row_probabilities
    cdef readonly const long long[::1] observed_row_indptr, observed_row_successors
    cdef readonly const double[::1] observed_row_probabilities
    cdef readonly const double[:, ::1] rewards
    cdef readonly const double[::1] transition_rewards
    cdef readonly const long long[::1] phase_begin
    cdef readonly const unsigned char[::1] is_nominal, stochastic
    cdef readonly const long long[:, ::1] policy_actions
    cdef readonly const double[:, :, ::1] policy_probabilities, nominal_policy_probabilities
    cdef readonly bint same_model, merge_actions, share_prior_rows


cpdef long long phase_at(Dynamics dynamics, long long offset) noexcept nogil

cpdef long long phase_end(Dynamics dynamics, long long phase) noexcept nogil

cpdef long long find_observed(
    Dynamics dynamics, RowTable table, long long phase, long long s, long long a, long long s_next
) noexcept nogil

cpdef long long find_entry(
    Dynamics dynamics, RowTable table, long long phase, long long observed,
    long long s, long long a, long long s_next, long long state
) noexcept nogil

@cython.locals(policy="const double[::1]", merge=bint)
cdef bint append_rows(
    Dynamics dynamics, RowTable table, long long phase, long long s, long long a, long long s_next, long long state
) noexcept nogil

@cython.locals(
    q="const double[::1]", posterior="double[::1]", p="double[::1]", exact=bint, rewarded=bint, informed=bint,
    at=longlong, successor=longlong, reward=double, extra=double, chance=double
)
cdef bint append_row(
    Dynamics dynamics, RowTable table, long long s, long long a, long long s_next, long long state,
    long long action, double weight, long long row
) noexcept nogil

cdef void add(RowTable table, long long row, long long successor, double probability) noexcept nogil

cdef void append_bounds(RowTable table, long long successor, double low, double high, double reward) noexcept nogil

cdef void hold_observed(Dynamics dynamics, RowTable table, long long pair) noexcept nogil
