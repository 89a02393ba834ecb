# The C types of `model_adapter.py`.
from monitor.stream.deduplication cimport digest


cdef class ModelAdapter:
    cdef object _model, _settings, _ended
    cdef dict _policies
    cdef long long _states, _actions
    cdef bint _by_index
    cdef const long long[::1] _starts, _successors, _nominal
    cdef const double[::1] _rewards, _extra, _tolerance, _likely, _repeats
    cdef double _largest

    cpdef bint goes_on(self, tuple pair, state, action)
    cpdef bint off_policy(self, long long state, long long action)
    cpdef (double, double) excess(self, long long state, long long action)
    cpdef acting(self, sha256)
    cdef long long _place(self, long long state, long long action, long long successor) noexcept
    cdef bint _available(self, long long state, long long action) noexcept
