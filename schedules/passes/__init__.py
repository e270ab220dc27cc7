"""What TVM's primitives do not do: it is done to a schedule that is complete, where it marked its loops."""
