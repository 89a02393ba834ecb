"""Learn a world from recordings of numbers: fit location and scale of the next state, and write them as ONNX graphs."""
