"""Sessions that live elsewhere: their addresses, and what carries a connection there."""
