# The C types of `session.py`.
from monitor.statistics.deviation cimport Deviation
from monitor.stream.decode cimport is_plain
from monitor.stream.deduplication cimport digest
from monitor.stream.adapter cimport Adapter
from monitor.stream.path cimport SlidingPath
from monitor.stream.reorder_buffer cimport ReorderBuffer

# A name of the module is looked up as an attribute of it each time, unless it is a C variable. Those in annotations of
# structs cannot be: msgspec would not find them.
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
    cdef _acted(self, state, long long action, tuple inputs)
    cdef _emit(self, event)
