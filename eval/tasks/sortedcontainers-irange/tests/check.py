import itertools, random
from sortedcontainers import SortedDict, SortedKeyList, SortedList, SortedSet
random.seed(7)
for load in (2, 3, 4, 7, 1000):
    values = [random.randrange(12) for _ in range(60)]
    keyed = SortedKeyList(values, key=lambda value: value * 2)
    plain = SortedList(values)
    keyed._reset(load)
    plain._reset(load)
    for low, high in itertools.product(range(-1, 13), repeat=2):
        for inclusive in itertools.product((True, False), repeat=2):
            for reverse in (False, True):
                expected = [v for v in sorted(values) if (low < v or inclusive[0] and v == low) and (v < high or inclusive[1] and v == high)]
                expected = expected[::-1] if reverse else expected
                found = list(keyed.irange_key(low * 2, high * 2, inclusive, reverse))
                assert found == expected, (load, low, high, inclusive, reverse, found)
                assert list(keyed.irange(low, high, inclusive, reverse)) == expected
                assert list(plain.irange(low, high, inclusive, reverse)) == expected
assert list(SortedDict({3: 1, 1: 2}).irange(1, 3, (True, False))) == [1]
assert list(SortedSet([3, 1, 2], key=lambda v: -v).irange(3, 1, (True, False))) == [3, 2]
big = SortedKeyList(range(5000), key=lambda v: v)
for edge in (999, 1000, 1999, 4999):
    assert list(big.irange_key(edge - 2, edge, (True, False))) == [edge - 2, edge - 1]
print("passed")
