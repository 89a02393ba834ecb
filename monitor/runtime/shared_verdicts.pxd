# The C types of `shared_verdicts.py`.
cimport cython

from monitor.alarm.machine cimport assess
from monitor.exact.verdict cimport is_missed
from monitor.stream.path cimport SlidingPath


@cython.no_gc  # nothing to which it refers can refer back to it, and there are thousands of objects
cdef class SharedVerdict:
    cdef readonly object verdict, assessment
    cdef readonly bint quiet
    cdef public object recourse


cdef class SharedVerdicts:
    cdef object _spec
    cdef long long _pairs, _most, _asked, _found
    cdef dict _known

    @cython.locals(found=SharedVerdict)
    cpdef SharedVerdict find(self, SlidingPath path)
    cpdef SharedVerdict peek(self, SlidingPath path)
    cpdef keep(self, SlidingPath path, verdict)
    cpdef end(self)
    cdef bint _is_worthwhile(self) except -1
    cdef _key(self, SlidingPath path)
