# The C types of `recording.py`.
cpdef event_of(kind, wall, ticks, rest)
cdef double _seconds(value) except? -1
