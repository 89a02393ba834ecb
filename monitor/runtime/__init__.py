"""The running monitor, without sockets and clocks: agents, formulas, and when each formula is evaluated."""
