# The C types of `adapter.py`.
from monitor.stream.deduplication cimport digest


cdef class Adapter:
    cdef dict _policies

    cpdef bint goes_on(self, tuple pair, state, action)
    cpdef bint possible(self, tuple pair, successor)
    cpdef bint off_policy(self, state, long long action, tuple inputs)
    cpdef tuple excess(self, state, long long action, tuple inputs)
    cpdef acting(self, sha256)
