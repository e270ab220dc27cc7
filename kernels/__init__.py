"""Placeholder until its owner writes it."""
