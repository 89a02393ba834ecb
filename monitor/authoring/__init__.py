"""Make the files that the monitor needs: models from recordings, simulators or files; ONNX policies; a configuration.

The sidecar imports only one module of this package: the reader of its model's format, named in `monitor.model.formats`.
"""
