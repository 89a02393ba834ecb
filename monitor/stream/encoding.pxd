# The C types of `encoding.py`.
cdef object _read, _read_text, _MALFORMED

cpdef dict unpack(payload, max_bytes=*)
cdef _read_msgpack(payload)
cdef long long _keys_sent(payload) except -1
cpdef _read_json(payload)
