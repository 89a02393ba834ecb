# The C types of `pair_bounds.py`.
cimport cython

from monitor.causal.row cimport RowMemory, choose
from monitor.exact.hash_table cimport find_slot
from monitor.hidden.couplings cimport Couplings, LatentTable
from monitor.hidden.readings cimport Readings, find_reading, same_reading
from monitor.hidden.transport cimport Transport, cheapest

cdef long long FULL, FIRST_COLUMN, TRUE
cdef double TINY


cdef class TrueSide:  # the order of the dataclass fields, because Cython takes the order from here
    cdef readonly LatentTable seen
    cdef readonly const double[::1] shown, acted
    cdef readonly double share
    cdef readonly const long long[::1] begin, into


cdef class Level:
    cdef readonly TrueSide true
    cdef readonly const double[::1] ahead, following
    cdef readonly Couplings table
    cdef readonly const int[::1] kinds
    cdef readonly const long long[:, ::1] steps
    cdef readonly const long long[::1] rewarded
    cdef readonly Level then
    cdef readonly long long columns, places, count
    cdef readonly long long[::1] keys, values, nodes
    cdef readonly double[::1] low, high
    cdef readonly bint is_last
    cdef readonly const double[:, :, :, ::1] worths
    cdef readonly const long long[::1] position, ends


cdef class Means:
    cdef readonly long long left, most, count
    cdef readonly bint finding, full
    cdef readonly Transport rows, shown
    cdef readonly double[:, ::1] highest_rows, highest_shown
    cdef readonly long long[::1] first, read
    cdef readonly long long[:, ::1] known
    cdef readonly double[::1] known_low, known_high, chosen
    cdef readonly double low, high
    cdef readonly RowMemory memory


@cython.locals(key=longlong, slot=longlong, node=longlong)
cdef long long find_node(Level level, long long place, long long other, long long column) noexcept

@cython.locals(left=longlong, column=longlong, both=longlong)
cdef long long sweep(Level level, Means means, long long at, bint finding) noexcept

@cython.locals(
    true=TrueSide, table=Couplings, seen=LatentTable, policy=Readings, begin=longlong, end=longlong, state=longlong,
    rest=longlong, total_low=double, total_high=double, latent=longlong, after=longlong, row=longlong
)
cdef void bound_node(Level level, Means means, long long place, long long other, long long column) noexcept

@cython.locals(shown=longlong)
cdef long long same_shown(LatentTable seen, long long latent, long long end) noexcept

@cython.locals(
    true=TrueSide, table=Couplings, problem=Transport, seen=LatentTable, highest="double[:, ::1]", state=longlong,
    policy=Readings, latent=longlong, end=longlong, rows=longlong, columns=longlong, missing=double, row=longlong,
    n=longlong, k=longlong
)
cdef (double, double) couple_shown(
    Level level, Means means, long long place, long long other, long long column
) noexcept

@cython.locals(least=double, longest=longlong, n=longlong, k=longlong)
cdef (double, double) solve(
    Means means, Transport problem, double[:, ::1] highest, long long rows, long long columns, double missing
) noexcept

@cython.locals(
    true=TrueSide, table=Couplings, chosen="double[::1]", seen=LatentTable, state=longlong, recalled=longlong,
    policy=Readings, total_low=double, total_high=double, action=longlong, chance=double, n=longlong, k=longlong
)
cdef void add_actions(
    Level level, Means means, long long latent, long long end, long long other, long long row, long long column
) noexcept

@cython.locals(seen=LatentTable, table=Couplings, known="long long[:, ::1]", at=longlong, n=longlong)
cdef void couple_rows(
    Level level, Means means, long long latent, long long other, long long action, long long after, long long column
) noexcept

@cython.locals(
    true=TrueSide, table=Couplings, problem=Transport, seen=LatentTable, highest="double[:, ::1]", taken=longlong,
    begin=longlong, end=longlong, first=longlong, columns=longlong, entry=longlong, rows=longlong, missing=double,
    same=bint, total_low=double, total_high=double, place=longlong, chance=double, low=double, high=double, n=longlong,
    k=longlong
)
cdef void solve_rows(
    Level level, Means means, long long latent, long long pair, long long after, long long column
) noexcept

@cython.locals(table=Couplings, rest=longlong, low=double, high=double, then=Level, node=longlong, reward=double)
cdef (double, double) value_ahead(
    Level level, Means means, long long pair, long long entry, long long place, long long after, long long column
) noexcept
