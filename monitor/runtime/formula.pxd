# The C types of `formula.py`.
cimport cython

from monitor.alarm.machine cimport next_alarm, assess
from monitor.exact.verdict cimport is_missed
from monitor.runtime.query cimport QueryEvaluator
from monitor.runtime.shared_verdicts cimport SharedVerdict, SharedVerdicts
from monitor.stream.path cimport SlidingPath
from monitor.stream.session cimport Session

cdef class FormulaMonitor:
    cdef public object alarm, answered_at, last, skipped, forecasts, takeovers, revises
    cdef public long long steps
    cdef readonly object query
    cdef object _path, _published, _agent, _identity, _spec
    cdef QueryEvaluator _evaluator
    cdef SharedVerdicts _shared

    cpdef bint is_due(self, now, when) except -1
    cpdef mark_answered(self, now)
    @cython.locals(path=SlidingPath, known=SharedVerdict)
    cpdef answer(self, Session session, engines, step, list notices, now, bint ends)
    cdef _note(self, verdict, step, SlidingPath path, list notices, engines)
    cdef bint _wants_bands(self, assessment) except -1
    cdef bint _examines(self, verdict, assessment) except -1
