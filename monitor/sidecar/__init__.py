"""The impure room: configuration, MQTT, metrics, HTTP, files. No mathematics here.

The heart is `pipeline.Pipeline`, which is free of clocks and sockets: `service` feeds it what happens live, and a
replay feeds it what was recorded, so both send the same bytes.
"""
