"""Compiled loops over forward weights, which compute exact answers along an observed path."""
