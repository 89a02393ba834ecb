"""Webhooks: post each change of an alarm as a signed HTTP POST, kept in the store until the receiver accepts it."""
