# The C types of `row_table.py`.
from monitor.causal.row cimport RowMemory


cdef class RowTable:
    cdef object _budget
    cdef readonly long long kind, observed_count, entry_count, row_count, successor_count, computed, held
    cdef readonly long long[::1] observed_keys, observed_values, entry_keys, entry_values, entry_begin
    cdef readonly long long[::1] action, row_begin
    cdef readonly double[::1] weight, reward, lower, upper, successor_reward
    cdef readonly int[::1] successors, place
    cdef readonly double[::1] observed, choice
    cdef readonly RowMemory memory
