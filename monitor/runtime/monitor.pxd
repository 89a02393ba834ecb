# The C types of `monitor.py`.
cimport cython
from monitor.runtime.agent_monitor cimport AgentMonitor
from monitor.runtime.trust cimport ModelTrust
from monitor.stream.session cimport Session
from monitor.stream.timer_queue cimport TimerQueue

# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object TURN, Received, deque


cdef class Monitor:
    cdef readonly object settings, patience
    cdef readonly double pause
    cdef public long long spent
    cdef object _adapter, _engines, _identity, _meaning, _new_trust, _newcomers, _swept
    cdef ModelTrust _trust
    cdef TimerQueue _timers
    cdef list _queries
    cdef dict _agents, _ready, _deleted_pages, _former
    cdef set _changed
    cdef bint _connected

    @cython.locals(other=Monitor)
    cdef Monitor _copy(self, ModelTrust trust)
    @cython.locals(monitor=AgentMonitor)
    cpdef list observe(self, observation, now)
    @cython.locals(monitor=AgentMonitor, was_rejected=bint, most="long long")
    cpdef list evaluate(self, now, bint latest_only=*, long long steps=*, double live_since=*)
    cdef double _next_sweep(self) except? -1.0
    @cython.locals(monitor=AgentMonitor, session=Session, before="long long", skipped="long long")
    cdef long long _turn(self, agent, now, list notices, live_since, long long most) except -1
