# The C types of `timer_queue.py`.
cdef class TimerQueue:
    cdef dict _times
    cdef list _heap

    cpdef put(self, name, ticks)
