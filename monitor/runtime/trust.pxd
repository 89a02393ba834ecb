# The C types of `trust.py`.
cdef class ModelTrust:
    cdef object _settings, _encoder, _state_names, _action_names, _fleet, _contradictions
    cdef long long _actions, _described_at
    cdef double _delta
    cdef readonly bint contradicted

    cpdef bint due(self, long long agents) except -1
