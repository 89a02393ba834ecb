"""Makes what the monitor needs: models from recordings, simulators and files, policies as ONNX, a configuration.

The sidecar imports none of it but the reader of its model's format, which `monitor.model.formats` names.
"""
