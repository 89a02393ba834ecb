# The C types of `reorder_buffer.py`.
from monitor.stream.deduplication cimport Deduplicator


cdef class ReorderBuffer:
    cdef public long long steps, next_seq, again
    cdef public double wait, newest, progress
    cdef public object episode, past, restart
    cdef public dict held, ended
    cdef public Deduplicator digests
    cdef public bint heard

    cpdef follow(self, long long seq, bytes digest, double arrived)
