"""The broker: connections, the inbox that bounds what comes in, the outbox of what goes out."""
