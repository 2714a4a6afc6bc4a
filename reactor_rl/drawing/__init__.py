"""Drawings of programs."""
