"""HTTP for all wires: connections, keys, limited and watched streams, errors as messages."""
