"""The process and the computer: TVM start-up, host target, threads, aligned arrays, measured peaks."""
