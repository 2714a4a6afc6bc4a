"""Kernels that step Gymnasium's own environments, many rows in one call, with the bits of its Python."""
