"""The sinks of notices: metrics, alerts over MQTT, the status page and the log."""
