"""This process and this computer: TVM start-up, host target, threads, aligned arrays, measured peaks."""
