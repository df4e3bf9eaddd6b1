"""The tools, which are what the model can do: one module per tool, `base.py` for what they share, `workspace.py` for what they work on."""
