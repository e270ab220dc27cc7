"""Learning: cost models of knobs, and what trials of other workloads teach."""
