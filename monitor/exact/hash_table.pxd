# The C types of `hash_table.py`.
cdef long long MIX


cpdef long long find_slot(const long long[::1] keys, long long key) noexcept nogil

cpdef void rehash(
    const long long[::1] keys, const long long[::1] values, long long[::1] new_keys, long long[::1] new_values
) noexcept nogil
