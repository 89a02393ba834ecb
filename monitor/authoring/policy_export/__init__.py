"""Policies of other tools as ONNX files with manifests. This package runs the user's code and opens pickles.

`convert.py` chooses the reader of a source. `agreement.py` compares the result with the original in every state.
"""
