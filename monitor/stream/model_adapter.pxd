# The C types of `model_adapter.py`.
from monitor.stream.adapter cimport Adapter


cdef class ModelAdapter(Adapter):
    cdef object _model, _encoder, _ended, _sent
    cdef long long _states, _actions
    cdef bint _by_index
    cdef const long long[::1] _starts, _successors, _nominal
    cdef const double[::1] _rewards, _extra, _tolerance, _likely, _repeats
    cdef double _largest

    cpdef bint goes_on(self, tuple pair, state, action)
    cpdef bint possible(self, tuple pair, tuple following)
    cpdef bint off_policy(self, tuple pair)
    cpdef tuple excess(self, tuple pair)
    cdef long long _place(self, long long state, long long action, long long successor) noexcept
    cdef bint _available(self, long long state, long long action) noexcept
