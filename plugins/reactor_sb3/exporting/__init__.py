"""Trained policies as one file that needs none of this: a C header, or ONNX."""
