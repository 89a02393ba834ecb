"""From recordings with numbers to a world: location and scale of the next state, fitted and written as ONNX graphs."""
