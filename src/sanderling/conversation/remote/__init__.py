"""Conversations whose model and log, or whose tools, are on another machine."""
