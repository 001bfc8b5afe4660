"""Typed scripts behind the doors (`start`, `check`) and the justfile; each has `--help`."""
