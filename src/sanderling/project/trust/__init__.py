"""Trust: which bytes of the project's own files the user has seen. Untrusted files are ignored."""
