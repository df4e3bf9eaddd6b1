"""Permissions: whether a tool use may run, must not, or is the person's to decide. Judges what tools say in data; runs nothing."""
