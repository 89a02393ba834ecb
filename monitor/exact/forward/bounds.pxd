# The C types of `bounds.py`.
cimport cython

from monitor.causal.row cimport greedy, sort_pairs
from monitor.exact.forward.buffers cimport Levels, Workspace
from monitor.exact.forward.answers cimport value_at_last_pair
from monitor.exact.forward.row_table cimport RowTable
from monitor.exact.forward.counterfactual_rows cimport find_entry, find_observed, phase_at
from monitor.exact.forward.observation cimport TransitionTable, Context

cdef int DONE, LEVELS_FULL, TABLE_FULL
cdef long long FULL, TRUE, FIRST_COLUMN, OFFSETS, NODES, EDGES, SHORT, SPARSE
cdef double INFINITY
cdef unsigned long long DE_BRUIJN
cdef const long long[::1] LOWEST_BIT


@cython.locals(status=int)
cpdef int interval(
    Context context, Levels levels, const long long[::1] states, const long long[::1] actions, double[::1] bounds
) noexcept nogil

@cython.locals(status=int)
cpdef int forward(
    Context context, Levels levels, const long long[::1] states, const long long[::1] actions
) noexcept nogil

cdef int lacking(Workspace workspace, long long part, long long length) noexcept nogil

@cython.locals(status=int)
cdef int close_level(Context context, Levels levels, long long last, long long s, long long a) noexcept nogil

@cython.locals(
    count=longlong, label=longlong, transition=longlong, target=longlong, rewarded=longlong, least=double, most=double
)
cdef int label_level(
    Context context, RowTable table, TransitionTable automaton, Levels levels, long long offset,
    long long s, long long a, long long s_next
) noexcept nogil

cdef void add_edge(
    Workspace workspace, Levels levels, long long column, long long edge, long long node, long long row,
    long long rewarded
) noexcept nogil

@cython.locals(nodes=longlong, edge=longlong)
cdef int next_level(
    RowTable table, Workspace workspace, Levels levels, long long offset, long long columns
) noexcept nogil

@cython.locals(node=longlong)
cpdef void backward(Context context, Levels levels, long long last, double[::1] bounds) noexcept nogil

@cython.locals(edge=longlong, ranked=bint, reward=double, least=double, most=double)
cdef void pull_values(RowTable table, Workspace workspace, Levels levels, long long first, long long end) noexcept nogil

@cython.locals(lower="const double[::1]", upper="const double[::1]")
cdef (double, double) greedy_means(RowTable table, Levels levels, long long begin, long long stop) noexcept nogil

@cython.locals(
    least=double, most=double, rest=double, total=double, worst=double, found=double, given=double, value=double,
    used=longlong, last=longlong, best=longlong, side=longlong, k=longlong
)
cpdef (double, double) short_means(RowTable table, Levels levels, long long begin, long long stop) noexcept nogil

@cython.locals(ranked="long long[:, ::1]", by_rank="double[:, ::1]", one="unsigned long long")
cpdef void rank_states(Workspace workspace, Levels levels, long long first, long long end) noexcept nogil

@cython.locals(
    marked="unsigned long long[:, ::1]", free=double, least=double, most=double, rest=double, total=double,
    given=double, bits="unsigned long long", n=longlong, k=longlong
)
cpdef (double, double) ranked_means(
    RowTable table, Workspace workspace, Levels levels, long long begin, long long stop, long long states
) noexcept nogil
