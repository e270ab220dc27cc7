"""Running packages: calling, timing, profiling and comparing them, without the compiler."""
