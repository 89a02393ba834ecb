# The C types of `decode.py`.
cimport cython
from monitor.stream.encoding cimport unpack


# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object _INFINITE, _KEYS, _MAX_INT, _MAX_SEQ, _MAX_TIME, Observation

@cython.locals(fields=dict, plain=bint)
cpdef decode(agent, payload, max_bytes=*)
cpdef bint is_plain(observation) except -1
cdef bint _are_plain(seq, state, action, time, reward, terminated, truncated, policy, inputs) except -1
cdef _episode(value)
cdef _integer(key, value, least, most=*)
cdef _text(key, value)
