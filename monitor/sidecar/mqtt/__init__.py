"""The broker: connections, the bounded inbox of received messages, and the outbox of messages to send."""
