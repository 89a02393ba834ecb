"""Webhooks: each change of an alarm as an HTTP POST, signed, kept in the store until the receiver has accepted it."""
