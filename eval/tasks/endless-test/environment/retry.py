"""Call a function again if it fails."""


def backoff(delay, longest):
    """Yield delays that double each time, up to `longest`, which is the last."""
    while delay != longest:
        yield delay
        delay *= 2
    yield longest


def retry(function, delays, sleep):
    """Return what `function` returns. After an OSError, call it again, once after each delay."""
    delays = iter(delays)
    while True:
        try:
            return function()
        except OSError:
            sleep(next(delays, 0))
