"""The same function by another algorithm: what a schedule may begin with (`algorithms`)."""
