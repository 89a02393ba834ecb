# The C types of `query.py`.
cimport cython
from monitor.exact.verdict cimport IncrementalCheck
from monitor.runtime.shared_verdicts cimport SharedVerdicts
from monitor.stream.path cimport SlidingPath
from monitor.stream.session cimport Session

cdef class QueryEvaluator:
    cdef readonly long long tests
    cdef readonly IncrementalCheck check
    cdef readonly object hidden
    cdef readonly long long begun, pushed

    @cython.locals(path=SlidingPath, shared=SharedVerdicts)
    cpdef verdict(self, query, engines, Session session, step)
