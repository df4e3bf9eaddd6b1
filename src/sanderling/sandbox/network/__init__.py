"""The sandbox's network, served by the host: a proxy to the user's allowed hosts, and a name server that refuses every query."""
