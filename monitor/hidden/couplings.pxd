# The C types of `couplings.py`.
cimport cython

from monitor.causal.row cimport RowMemory, align, choose, reweigh_within
from monitor.exact.hash_table cimport find_slot
from monitor.hidden.readings cimport Readings, find_reading

cdef long long FULL, BLOCK


cdef class LatentTable:  # the order of the dataclass fields, because Cython takes the order from here
    cdef readonly const long long[::1] place, state, before, shown, reading, after, action
    cdef readonly const double[::1] weight
    cdef readonly const long long[::1] begin, number
    cdef readonly Readings policy


cdef class Couplings:
    cdef readonly long long states, actions, memories, widest, most, unknown
    cdef readonly bint carries_on, same_model
    cdef readonly Readings policy
    cdef readonly const long long[::1] taken_indptr, taken_successors, indptr, target_successors, shown_indptr, shown
    cdef readonly const double[::1] taken_chances, target_chances, extra, shown_chances
    cdef readonly const double[:, ::1] rewards
    cdef readonly RowMemory memory
    cdef readonly double[::1] read_chances, chosen
    cdef readonly long long epoch, block_count, key_count, row_key_count, decision_count, row_count, successor_count
    cdef readonly long long[::1] keys, values, row_keys, row_values, begin, row_begin, action, after, rows, successors
    cdef readonly long long[:, ::1] blocks
    cdef readonly double[::1] likely, row_reward, chances


@cython.locals(at=longlong, state=longlong, memory=longlong, entry=longlong)
cpdef long long find_all(
    Couplings table, LatentTable seen, const long long[::1] begin, const long long[::1] places,
    const long long[::1] live, const long long[::1] first, long long[::1] found, long long latent
) noexcept nogil

@cython.locals(places=longlong, block=longlong, entry=longlong, at=longlong, decisions=longlong)
cdef long long find(Couplings table, LatentTable seen, long long latent, long long place) noexcept nogil

@cython.locals(slot=longlong, block=longlong)
cdef long long find_block(Couplings table, long long key) noexcept nogil

@cython.locals(was=longlong, action=longlong)
cdef bint decide(Couplings table, LatentTable seen, long long latent, long long state, long long recalled) noexcept nogil

@cython.locals(was=longlong, action=longlong, targets="const long long[::1]", chances="double[::1]")
cdef bint decide_by(
    Couplings table, LatentTable seen, long long latent, Readings policy, long long state, long long recalled
) noexcept nogil

@cython.locals(row=longlong, after=longlong, target="const double[::1]", observed="const double[::1]", chosen="double[::1]")
cdef bint read_one(
    Couplings table, LatentTable seen, long long latent, Readings policy, long long recalled, long long read, double chance
) noexcept nogil

cdef bint add_decision(Couplings table, long long action, long long after, double chance) noexcept nogil

cdef bint find_rows_of(Couplings table, long long was, long long action, long long state) noexcept nogil

cdef long long find_rows(Couplings table, long long taken, long long other) noexcept nogil

@cython.locals(
    targets="const long long[::1]", q="const double[::1]", states="const long long[::1]", p="const double[::1]",
    chances="double[::1]", same=bint
)
cdef long long append_rows(Couplings table, long long taken, long long other) noexcept nogil

@cython.locals(reward=double)
cdef bint append_row(Couplings table, long long other, const double[::1] chances) noexcept nogil
