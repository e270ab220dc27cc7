"""Planning: what a tuning will do, how long it will take, and which options have no effect."""
