"""Importing: ONNX files, PyTorch programs and Relax modules become Relax modules of static shapes."""
