"""The inference engine: what the model computes and remembers.

Knows torch and GGUF; knows neither Qt, nor SQL, nor settings files. Nothing is imported here, so
that ``import engine.events`` stays free of torch.
"""
