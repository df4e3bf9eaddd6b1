"""Conversations that an external agent answers."""
