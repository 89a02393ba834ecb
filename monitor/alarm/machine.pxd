# The C types of `machine.py`.
# Each use of a global name costs an attribute look-up in the module, unless the name is a C variable.
cdef object NOTHING, UNRECORDED, replace

cpdef assess(verdict, spec)
cdef _assessed(verdict, spec)
cpdef tuple next_alarm(alarm, assessment, spec, seq, time)
cdef bint _enough(alarm, assessment, spec) except -1
cdef tuple _apply(alarm, event, bint enough)
