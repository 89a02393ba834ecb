# The C types of `adapter.py`.
from monitor.stream.deduplication cimport digest


cdef class Adapter:
    cdef dict _policies

    cpdef bint goes_on(self, tuple pair, state, action)
    cpdef bint possible(self, tuple pair, tuple following)
    cpdef bint off_policy(self, tuple pair)
    cpdef tuple excess(self, tuple pair)
    cpdef tuple joined(self, tuple previous, tuple pair, long long seq, policy)
    cpdef acting(self, sha256)
