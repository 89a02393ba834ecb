# The C types of `fleet.py`.
cimport cython
from libc cimport math
from monitor.statistics.late_bets cimport part_of
from monitor.statistics.shared_tests cimport SharedTests


cdef class FleetTest:
    cdef readonly double cap, log10_e
    cdef readonly bint rejected
    cdef public long long reported
    cdef double _alpha, _impossible
    cdef SharedTests _shared
    cdef list _lost

    cdef _start(self, SharedTests shared)
    @cython.locals(other=FleetTest)
    cpdef FleetTest alone(self)
    @cython.locals(f=double, lost=double, total=double, profit=double, most=double, each=double)
    cpdef combine(self, tests)
