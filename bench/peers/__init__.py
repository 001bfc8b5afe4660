"""Our broker beside others, on the same machine, in the same run."""
