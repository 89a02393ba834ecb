# The C types of `trust.py`.
cimport cython
from monitor.statistics.fleet cimport FleetTest
from monitor.statistics.model_betting cimport ModelTest


cdef long long REPORT_EVERY, STEPS_EVERY


cdef class ModelTrust:
    cdef object _settings, _encoder, _state_names, _action_names, _contradictions, _noises, _successor_names
    cdef FleetTest _fleet
    cdef long long _actions, _described_at
    cdef double _delta
    cdef readonly bint rejected

    @cython.locals(other=ModelTrust)
    cpdef ModelTrust alone(self)
    cpdef step(self, ModelTest test, agent, before, after)
    cpdef bint due(self, long long agents) except -1
    @cython.locals(rejected="long long", often="long long")
    cdef long long _every(self, long long agents) except -1
