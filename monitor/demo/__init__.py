"""`cfmon demo`: a broker, a monitor, and agents that act in a simulator."""
