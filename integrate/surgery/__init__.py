"""SURGERY: take a function out of a model, put another in its place, and prove that both compute the same."""
