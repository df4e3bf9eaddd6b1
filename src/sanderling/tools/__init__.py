"""The model's tools: one module for each, `base.py` for shared parts, `workspace.py` for their environment."""
