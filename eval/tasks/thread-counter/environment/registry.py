"""Counts by name, for all threads of the program."""

import threading


class Registry:
    def __init__(self):
        self._counts = {}
        self._callbacks = []
        self._lock = threading.Lock()

    def on_change(self, callback):
        """Call `callback` with the name and its new value after each count."""
        self._callbacks.append(callback)

    def count(self, name, step=1):
        """Add `step` to the count of the name, and return it."""
        value = self._counts.get(name, 0)
        value += step
        with self._lock:
            self._counts[name] = value
            for callback in self._callbacks:
                callback(name, value)
        return value

    def snapshot(self):
        """Return all counts."""
        return {name: value for name, value in self._counts.items()}
