"""The monitor as a service: configuration, MQTT, metrics, HTTP and files. No mathematics here.

The central class is `pipeline.Pipeline`. It uses no clock and no socket: `service` passes live events to it, and a
replay passes recorded events to it. Both therefore send the same bytes.
"""
