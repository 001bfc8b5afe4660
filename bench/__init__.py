"""Benchmarks: harness, scenarios and results. Nothing here is installed or part of the gate."""
