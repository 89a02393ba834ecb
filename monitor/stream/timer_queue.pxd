# The C types of `timer_queue.py`.
cdef double NEVER
cdef long long SLACK


cdef class TimerQueue:
    cdef dict _times
    cdef list _heap
    cdef readonly double next

    cpdef put(self, name, ticks)
