"""Reporting: what a tuning tells while it runs, and what a record says in words."""
