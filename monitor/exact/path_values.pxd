# The C types of `path_values.py`.
cimport cython

from monitor.exact.forward.buffers cimport ForwardBuffers
from monitor.exact.forward.evaluator cimport Evaluator
from monitor.logic.comparison cimport probability


cdef class WorldValues:
    cdef readonly object change, measure
    cdef readonly Evaluator evaluator
    cdef readonly ForwardBuffers buffers
    cdef readonly long long keep, only
    cdef bint _is_probability

    cdef double value(self, long long place) noexcept
    cdef select(self, long long oldest)


cdef class _RecentPairs:
    cdef long long _kept, _count
    cdef object _arrays

    cdef append(self, long long state, long long action)
    cdef tuple last(self, long long count)


cdef class PathValues:
    cdef readonly object evaluators
    cdef object _nominal, _formula, _end, _path, _acted
    cdef dict _by_world, _keep
    cdef readonly list worlds
    cdef list _from_start
    cdef bint _restart
    cdef long long _window
    cdef _RecentPairs _recent

    @cython.locals(
        entry=WorldValues, length="long long", place="long long", taken="long long", k="long long", answer_now=bint
    )
    cpdef advance(self, path, long long added, end, acted=*)
    @cython.locals(entry=WorldValues)
    cpdef double value(self, change, measure, long long position) except? -1
    @cython.locals(entry=WorldValues, place="long long")
    cpdef list profile(self, change, measure)
    @cython.locals(known=WorldValues)
    cdef _add(self, WorldValues entry, long long from_start)
    @cython.locals(entry=WorldValues, evaluator=Evaluator)
    cdef _answer(self)
    cdef bint _foresees_end(self, WorldValues entry) except -1
    cdef _check_known(self, change, measure, long long position)
    cdef bint _mixes(self, change, measure) except -1
