# The C types of `late_bets.py`.
cpdef double part_of(long long step) noexcept nogil

cpdef double idle_after(long long steps) noexcept nogil

cdef long long _doublings(long long step) noexcept nogil
