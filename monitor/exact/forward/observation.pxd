# The C types of `observation.py`.
cimport cython

from monitor.causal.row cimport sort_pairs
from monitor.exact.forward.buffers cimport ForwardBuffers, Workspace
from monitor.exact.forward.row_table cimport RowTable
from monitor.exact.forward.counterfactual_rows cimport Dynamics, find_entry, find_observed, phase_end

cdef int DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL
cdef long long FULL, TRUE, FIRST_COLUMN


cdef class TransitionTable:
    cdef public const long long[:, :, ::1] ranges
    cdef public const long long[:, ::1] transitions
    cdef readonly const int[::1] label_of
    cdef readonly bint by_action


cdef class Future:
    cdef public const double[:, ::1] values
    cdef public long long[:, ::1] vector
    cdef readonly const long long[::1] indptr, successors
    cdef readonly const double[::1] probabilities
    cdef readonly const double[:, ::1] rewards


cdef class Context:
    cdef readonly Dynamics dynamics
    cdef readonly RowTable table
    cdef readonly TransitionTable automaton
    cdef readonly Future future
    cdef readonly Workspace workspace


cpdef int observe(Context context, ForwardBuffers forward, long long state, long long action) noexcept nogil

@cython.locals(shift=longlong, kept=longlong)
cdef int advance_weights(Context context, ForwardBuffers forward, Workspace workspace, long long s_next) noexcept nogil

@cython.locals(
    informed=bint, entry=longlong, count=longlong, state=longlong, low=longlong, high=longlong, begin=longlong,
    end=longlong, first=longlong, last=longlong
)
cdef int label_step(
    Dynamics dynamics, RowTable table, TransitionTable automaton, Workspace workspace, ForwardBuffers forward,
    long long s_next, long long kept
) noexcept nogil

cdef void add_edge(
    Workspace workspace, long long column, long long edge, long long node, long long row, long long first, long long last
) noexcept nogil

@cython.locals(found=bint)
cpdef bint shares_successor(RowTable table, Workspace workspace, long long entry) noexcept nogil

@cython.locals(segments=longlong, nodes=longlong, edge=longlong, begins=bint)
cdef long long push_rows(
    RowTable table, Workspace workspace, ForwardBuffers forward, long long columns, long long shift, long long s_next
) noexcept nogil

@cython.locals(node=longlong, state=longlong, first=longlong, last=longlong)
cdef long long push_row(
    RowTable table, Workspace workspace, ForwardBuffers forward, long long edge, long long shift, long long nodes
) noexcept nogil

cdef void add_node(
    Workspace workspace, long long node, long long state, long long first, long long last, long long starts
) noexcept nogil

@cython.locals(n=longlong)
cpdef void sort_nodes(Workspace workspace, long long begin, long long end) noexcept nogil
