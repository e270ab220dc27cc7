"""Tuning a model: which of its functions, what they come to together, and whether the whole became faster."""
