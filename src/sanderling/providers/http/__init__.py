"""HTTP as all wires speak it: connections, keys, streams that are bounded and watched, failures in words."""
