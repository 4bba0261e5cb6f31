"""The window: what the person sees. Knows Qt and the application, never torch."""
