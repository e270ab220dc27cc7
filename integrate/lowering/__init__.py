"""Lowering: from an imported model to scheduled functions, in named phases with one pass a file."""
