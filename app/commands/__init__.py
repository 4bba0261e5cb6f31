"""What ``reprise`` can do in a terminal: one file per command, put together by ``app/cli.py``."""
