"""The monitor as it runs, without a socket or a clock: agents, formulas, what is answered and when."""
