"""Trust: which bytes of the project's own files the person has seen. Untrusted files tell nobody anything."""
