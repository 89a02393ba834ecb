# The C types of `path.py`.
cdef object NOMINAL


cdef class SlidingPath:
    cdef public long long window, begun, pushed
    cdef public object last, broken, detail
    cdef public bint oldest_dropped, ended, terminated
    cdef public list held, acted, inputs

    cpdef push(self, step)
