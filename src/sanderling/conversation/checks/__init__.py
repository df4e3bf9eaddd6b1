"""Checks of settings and providers, which need no session."""
