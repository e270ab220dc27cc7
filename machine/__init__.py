"""The process and the computer it runs on: TVM start-up, host target, threads, aligned arrays, measured peaks."""
