"""Child sessions, which work on a part of their parent's task."""
