"""Into models: import, extract workloads, apply records, compile, package, run, profile, compare."""
