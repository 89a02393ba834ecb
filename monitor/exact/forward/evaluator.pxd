# The C types of `evaluator.py`.
cimport cython

from monitor.exact.forward.buffers cimport ForwardBuffers, Workspace
from monitor.exact.forward.answers cimport answer, push
from monitor.exact.forward.counterfactual_rows cimport Dynamics
from monitor.exact.forward.observation cimport TransitionTable, Context, Future

# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object EXACT


cdef class Evaluator:
    cdef object __weakref__  # lets tests check that an evaluator is freed
    cdef readonly object nominal, value_table, unrolled
    cdef readonly bint lazy
    cdef object _row_tables
    cdef Dynamics _dynamics
    cdef Workspace _workspace
    cdef TransitionTable _automaton
    cdef Future _future
    cdef dict _contexts
    cdef long long _offsets
    cdef bint _cleared

    @cython.locals(status=int)
    cpdef push(self, ForwardBuffers forward, long long state, long long action, bint answered)
    @cython.locals(status=int)
    cpdef answer(self, ForwardBuffers forward)
    cdef Context _fit(self, ForwardBuffers forward, long long pairs)
    cpdef Context _context(self, kind)
