"""Peers: other tools, and samplers that compute the same values; each is imported when a row needs it."""
