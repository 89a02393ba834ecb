# The C types of `session.py`.
from monitor.statistics.deviation cimport Deviation
from monitor.stream.decode cimport is_plain
from monitor.stream.deduplication cimport digest
from monitor.stream.adapter cimport Adapter
from monitor.stream.path cimport SlidingPath
from monitor.stream.reorder_buffer cimport ReorderBuffer

# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable. Names in
# annotations of structs cannot be C variables, because msgspec would not find them.
cdef object NOT_TAKEN_OVER, UNKNOWN_POLICY, Deviates, OffPolicy, Received


cpdef bint is_late(lag, double most)


cdef class Session:
    cdef public object agent, settings, pending, since, last_heard, last_message, old, policy
    cdef public SlidingPath path
    cdef public ReorderBuffer order
    cdef public Deviation deviation
    cdef public tuple previous
    cdef public bint mismatch, dropped
    cdef Adapter _adapter
    cdef double _ticks

    cpdef list arrive(self, observation, now)
    cpdef bint holds(self) except -1
    cpdef advance(self)
    cdef bint _is_known(self, observation)
    cdef bint _goes_on(self, observation)
    cdef _hear(self, double time, now)
    cdef _follow(self, observation, now, bint late)
    cdef _take(self, episode, long long seq, tuple pair, double time, bint late)
    cdef _acted(self, tuple pair)
    cdef _emit(self, event)
