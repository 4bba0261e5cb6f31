"""The shared store: one PostgreSQL server to which several machines copy what they keep."""
