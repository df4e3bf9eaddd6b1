"""Remote sessions: their addresses, and the connections to them."""
