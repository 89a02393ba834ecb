# The C types of `buffers.py`.
cdef class Levels:
    cdef readonly long long[::1] first_node, edge_count, column, first_edge
    cdef readonly int[::1] state
    cdef readonly double[::1] low, high
    cdef readonly long long[:, ::1] edges, ranked, word
    cdef readonly unsigned long long[:, ::1] bit, marked
    cdef readonly double[:, ::1] row_values, by_rank


cdef class Workspace:
    cdef Levels _levels
    cdef readonly long long columns, starts, nodes, edge_clock, node_clock
    cdef readonly long long[::1] state_stamp, observed_stamp, column, first_node, by_state, missing
    cdef readonly int[::1] state_node, states
    cdef readonly long long[:, ::1] edge_lists, edges, start_range
    cdef readonly double[:, ::1] weights
    cdef readonly double[::1] accumulated, keys


cdef class ForwardBuffers:
    cdef readonly object values
    cdef readonly double[::1] answers
    cdef readonly long long max_starts, live_starts
    cdef public long long queried_start
    cdef public long long segment_count
    cdef readonly long long start_count, last_state, last_action, base_offset
    cdef public bint unanswered
    cdef readonly long long[::1] column, first_node
    cdef readonly int[::1] states
    cdef readonly long long[:, ::1] start_range
    cdef readonly double[:, ::1] weights
    cdef readonly double[::1] accumulated
