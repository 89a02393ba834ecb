# The C types of `forward.py`.
cimport cython

from monitor.hidden.couplings cimport Couplings, LatentTable

cdef long long FIRST_COLUMN, TRUE


cdef class Nodes:
    cdef readonly long long[::1] begin, other
    cdef readonly double[:, ::1] weights, done
    cdef readonly const long long[::1] live, local


cdef class Edges:  # the order of the dataclass fields, because Cython takes the order from here
    cdef readonly const long long[::1] begin, latent, rank
    cdef readonly const double[::1] chance


cdef class Part:
    cdef readonly Couplings table
    cdef readonly const long long[::1] first, found
    cdef readonly long long[:, ::1] chosen, count
    cdef readonly long long begin, end, offset_begin, offset_end


cdef class Sums:
    cdef readonly long long[::1] stamp
    cdef readonly double[:, ::1] weights
    cdef readonly long long clock, low, high


@cython.locals(width=longlong, memories=longlong, kind=longlong, weight=double, to=longlong)
cpdef void read_labels(
    Nodes nodes, const int[::1] kinds, const long long[:, ::1] steps,
    const long long[::1] offsets, Nodes moved, const long long[::1] rewarded
) noexcept nogil

@cython.locals(source=longlong)
cpdef long long push_apart(
    LatentTable seen, Nodes moved, Part first, Part then, Nodes apart, Sums sums, long long latent
) noexcept nogil

@cython.locals(
    others="long long[::1]", weights="double[:, ::1]", summed="double[:, ::1]", stamp="long long[::1]",
    columns=longlong, latent=longlong, chance=double, rank=longlong, source=longlong, other=longlong
)
cpdef long long push(
    LatentTable seen, Edges edges, Nodes moved, Nodes apart, Part first, Part then, Nodes fresh, Nodes following,
    Sums sums, long long place
) noexcept nogil

cdef void begin_place(Nodes nodes, Sums sums, long long place) noexcept nogil

@cython.locals(
    begin=longlong, first=longlong, weights="double[:, ::1]", shift=longlong, alone=longlong, depending=longlong,
    some=bint, entry=longlong, rows=longlong
)
cdef void choose_nodes(Nodes moved, long long source, long long latent, Part part, Couplings table) noexcept nogil

@cython.locals(
    memories=longlong, begin=longlong, first=longlong, depends=longlong, weights="double[:, ::1]",
    summed="double[:, ::1]", successors="long long[::1]", chances="double[::1]", shift=longlong, columns=longlong,
    stamp="long long[::1]", clock=longlong, low=longlong, high=longlong, n=longlong, entry=longlong, likely=double,
    row=longlong, after=longlong, other=longlong, weight=double
)
cdef void spread(
    Nodes moved, long long source, long long latent, long long rank, double chance, Part part, Couplings table,
    Nodes nodes, long long place, Sums sums
) noexcept nogil

cdef void begin_sums(Sums sums, long long other, long long columns) noexcept nogil

@cython.locals(count=longlong)
cdef bint collect(Nodes following, Sums sums, long long place) noexcept nogil

@cython.locals(
    before=longlong, memories=longlong, begin=longlong, state=longlong, at=longlong, entry=longlong, action=longlong,
    chance=double, weight=double
)
cpdef void add_values(
    LatentTable seen, Nodes nodes, Part part, Couplings table, const long long[::1] offsets, const long long[::1] live,
    const long long[::1] local, const long long[::1] position, const double[:, :, ::1] worth, long long first,
    long long end, double[::1] values
) noexcept nogil
