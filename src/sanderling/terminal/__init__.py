"""The standard streams, as every program in a terminal needs them. Depends on text and errors only."""
