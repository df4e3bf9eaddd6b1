from itertools import count, islice
from more_itertools import windowed

def expected(items, n, fill, step):
    if not items:
        return []
    found = [tuple(items[:n]) + (fill,) * (n - len(items[:n]))]
    start = step
    while len(items) > n and start < len(items):
        # A further window needs an item that no earlier one could show.
        if start + n - step >= len(items) and start + n > len(items) and start - step + n >= len(items):
            break
        window = items[start:start + n]
        found.append(tuple(window) + (fill,) * (n - len(window)))
        start += step
    return found

for length in range(9):
    for n in range(1, 6):
        for step in range(1, 9):
            for fill in (None, 0, 3):
                items = list(range(length))
                found = list(windowed(items, n, fill, step))
                assert found == expected(items, n, fill, step), (length, n, step, found, expected(items, n, fill, step))
assert list(windowed([1, 2, 3], 2, step=3)) == [(1, 2)]
assert list(windowed([None] * 8, 2, step=3)) == [(None, None)] * 3
assert list(windowed([1, 2, None, None, None], 2, step=3)) == [(1, 2), (None, None)]
assert list(islice(windowed(count(), 2, step=5), 2)) == [(0, 1), (5, 6)]
assert list(windowed([1, 2], 0)) == [()]
print("passed")
