"""Benchmarks: each claim of the README has a command here that shows it, against llama.cpp.

Both engines run in child processes that speak the same JSON lines, so that threads, memory and
loading are measured alike and the runs can alternate.
"""
