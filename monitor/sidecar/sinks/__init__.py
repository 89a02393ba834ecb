"""Where notices go: metrics, alerts over MQTT, the status page, the log."""
