# The C types of `agent_monitor.py`.
cimport cython
from monitor.runtime.formula cimport FormulaMonitor
from monitor.runtime.trust cimport ModelTrust
from monitor.statistics.model_betting cimport ModelTest
from monitor.stream.path cimport SlidingPath
from monitor.stream.session cimport Session

# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object Break, End, Ended, Step


cdef class AgentMonitor:
    cdef readonly Session session
    cdef public ModelTest test
    cdef ModelTrust _model_trust
    cdef object _engines
    cdef bint _impossible, _open, _by_time
    cdef list _formulas, _followed, _judging

    @cython.locals(formula=FormulaMonitor, times=list)
    cpdef due(self)
    @cython.locals(formula=FormulaMonitor)
    cpdef revise(self, now, list notices)
    @cython.locals(
        session=Session, path=SlidingPath, formula=FormulaMonitor, begun="long long", left="long long", skipped="long long",
        continued=bint, follows=bint, live=bint
    )
    cpdef long long evaluate(self, now, list notices, bint connected, live_since=*, long long most=*) except? -1
    cdef _advance_forecasts(self, event, list notices, bint continued)
    cdef _test_model(self, ModelTest test, before, event, list notices)
    @cython.locals(path=SlidingPath)
    cdef _blindness(self, FormulaMonitor formula, now, bint connected)
    cdef _late(self, now)
    cdef _mark(self, FormulaMonitor formula, now)
    @cython.locals(formula=FormulaMonitor)
    cdef _answer(self, step, now, list notices, bint connected, when)
