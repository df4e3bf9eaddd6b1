"""The standard streams, as every program in a terminal needs them. It knows text and errors."""
