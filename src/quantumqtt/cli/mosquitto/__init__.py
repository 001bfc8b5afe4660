"""What `pub`, `sub` and `rr` share: the flags, formats and habits of Mosquitto's clients.

Scripts and fingers know those three programs, so ours take the same words and print the same bytes;
`tests/cli` runs both side by side. Nothing here loads a server's rooms or asyncio: these commands
start, say one thing and end, and most of their life would be spent importing.
"""
