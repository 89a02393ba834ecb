"""Make the files that the monitor needs: models from recordings, simulators or files; ONNX policies; a configuration.

The sidecar imports only one module of this package: the reader for the format of its model. `monitor.model.formats`
names this module.
"""
