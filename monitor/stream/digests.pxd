# The C types of `digests.py`.
cdef unsigned long long FACTOR, SEED, ALL
cdef double[::1] REALS
cdef unsigned long long[::1] WORDS

cpdef unsigned long long policy_word(policy) except? 0

cpdef unsigned long long plain_digest(
    unsigned long long state, unsigned long long action, double time, double reward, unsigned long long policy
) noexcept

cdef unsigned long long _mix(unsigned long long mixed, unsigned long long word) noexcept nogil
