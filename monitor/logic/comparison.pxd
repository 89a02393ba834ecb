# The C types of `comparison.py`.
cpdef bint passes(double value, comparison, double bound)

cpdef double probability(double value) noexcept
