# The C types of `deduplication.py`.
from monitor.stream.digests cimport plain_digest, policy_word

cdef long long _SEQS, _SIZE
cdef object _ABSENT, _NOTHING

cpdef bytes digest(observation)


cdef class Deduplicator:
    cdef bytearray _ring
    cdef bytes _first
    cdef long long _begin, _end

    cpdef put(self, long long seq, bytes hashed)
    cdef _write(self, long long seq, bytes hashed)
