"""The application: what is kept and who runs when. Knows the engine, never Qt."""
