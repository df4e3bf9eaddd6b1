"""The network, in the host: a proxy that lets the person's hosts through, and a name server that only says no."""
