# The C types of `machine.py`.
# A name of the module is looked up as an attribute of it each time, unless it is a C variable.
cdef object NOTHING, UNRECORDED, replace

cpdef assess(verdict, spec)
cdef _assessed(verdict, spec)
cpdef tuple next_alarm(alarm, assessment, spec, seq, time)
cdef bint _enough(alarm, assessment, spec) except -1
cdef tuple _apply(alarm, event, bint enough)
