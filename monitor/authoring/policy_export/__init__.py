"""Policies of other tools as ONNX files with manifests. Here the user's code runs, and pickles are opened.

`convert.py` chooses the reader of a source; `agreement.py` compares the result with the original in every state.
"""
