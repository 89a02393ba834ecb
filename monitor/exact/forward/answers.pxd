# The C types of `answers.py`.
cimport cython

from monitor.causal.row cimport choose
from monitor.exact.forward.buffers cimport ForwardBuffers, Workspace
from monitor.exact.forward.counterfactual_rows cimport phase_at, phase_end
from monitor.exact.forward.observation cimport TransitionTable, Context, Future, observe

cdef int DONE, VALUES_MISSING
cdef long long FIRST_COLUMN, NOT_COMPUTED, ANSWER, BEGIN, SKIP


@cython.locals(observed="const double[::1]", policy="const double[::1]", choice="double[::1]", total=double)
cpdef (double, int) value_at_last_pair(
    Context context, long long offset, long long column, long long state, long long s, long long a
) noexcept nogil

@cython.locals(label=longlong, transition=longlong, target=longlong, vector=longlong, total=double, reward=double)
cdef (double, int) action_value(
    TransitionTable automaton, Future future, Workspace workspace, long long offset, long long column,
    long long state, long long action
) noexcept nogil

cdef (double, int) value_at(
    Future future, Workspace workspace, long long offset, long long column, long long state
) noexcept nogil

@cython.locals(
    lowest=longlong, highest=longlong, begin=longlong, end=longlong, first=longlong, last=longlong,
    unchanged=bint, conditioned=bint
)
cdef int write_answers(Context context, ForwardBuffers forward, double[::1] answers) noexcept nogil

@cython.locals(status=int)
cpdef int push(Context context, ForwardBuffers forward, long long state, long long action, bint answered) noexcept nogil

cpdef int answer(Context context, ForwardBuffers forward) noexcept nogil

@cython.locals(todo=longlong, status=int)
cpdef (long long, int) push_all(
    Context context, ForwardBuffers forward, const long long[::1] states, const long long[::1] actions,
    double[:, ::1] values, const long long[::1] plan, long long done
) noexcept nogil
