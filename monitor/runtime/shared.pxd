# The C types of `shared.py`.
from monitor.stream.path cimport SlidingPath

cdef class SharedVerdicts:
    cdef object _spec
    cdef long long _pairs, _most, _asked, _found
    cdef dict _known

    cpdef find(self, SlidingPath path)
