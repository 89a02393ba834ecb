"""From recordings of numbers to a world: location and scale of the next state are fitted and written as ONNX graphs."""
