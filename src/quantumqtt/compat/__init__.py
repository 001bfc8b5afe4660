"""Other clients' interfaces over ours, so that programs can move before they are rewritten."""
