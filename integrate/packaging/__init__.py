"""Packaging: compiled models as one file that another process can check and load."""
