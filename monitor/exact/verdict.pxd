# The C types of `verdict.py`.
cimport cython

from monitor.exact.path_values cimport PathValues
from monitor.logic.comparison cimport passes

# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object And, Const, Goal, Label, Not, Or, Quantity, Regret, UNRECORDED


cdef class _Answer:
    cdef double value
    cdef long long offset
    cdef bint clipped
    cdef object bounds, guaranteed, extremes


cdef class _Truth:
    cdef bint surely, possibly, least, greatest

    cdef holds(self)


cdef class _Question:
    cdef object text, measure, test, change, baseline
    cdef long long offset


cdef class IncrementalCheck:
    cdef readonly object evaluators, formula, causal_model, text, path
    cdef readonly PathValues path_values
    cdef readonly dict quantities
    cdef readonly bint start_dropped
    cdef dict _questions
    cdef object _extremes, _handover, _refused
    cdef list _regret_texts
    cdef long long _length
    cdef bint _guarantees, _due, _from_start

    @cython.locals(new="long long")
    cpdef verdict(self, path, added=*, bint terminated=*, bint start_observed=*, acted=*)
    @cython.locals(truth=_Truth, clipped=bint)
    cdef plain(self, formula)
    cdef _plain(self, tuple quantities, value, holds, robust, offset, bint clipped)
    @cython.locals(one=_Answer, other=_Answer, met=_Truth, meets=_Truth)
    cdef regret(self, formula)
    @cython.locals(answer=_Answer)
    cdef _value_verdict(self, goal)
    @cython.locals(question=_Question, truth=_Truth, one=_Truth, other=_Truth)
    cdef _Truth _truth(self, formula)
    @cython.locals(truth=_Truth, surely=bint, possibly=bint, least=bint, greatest=bint)
    cdef _Truth _compared(self, text, test, _Answer answer)
    @cython.locals(used="long long", position="long long", clipped=bint, value=double, base=double, answer=_Answer, other=_Answer)
    cdef _Answer _answer(self, _Question question)
    cdef _Answer _in_world(self, change, long long position, measure, double value, long long used, bint clipped)
    cdef _guaranteed(self, change, long long position, measure, bounds)
    cdef _bands(self, quantities)
    cdef _bounds(self, change, long long position, measure, double value)


cpdef bint is_missed(verdict) except -1

@cython.locals(least=bint, greatest=bint, truth=bint)
cdef (bint, bint) _over(test, double value, band)

@cython.locals(last="long long", used="long long", position="long long")
cpdef (long long, long long, bint) resolve(long long offset, long long length) noexcept
