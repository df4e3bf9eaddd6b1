import random
from boltons.cacheutils import LRI, LRU
for kind in (LRI, LRU):
    cache = kind(max_size=3)
    for key in "abc":
        cache[key] = key
    cache.popitem()
    for key in "defgh":
        cache[key] = key
        assert len(cache) <= 3
    assert sorted(cache) == ["f", "g", "h"], dict(cache)
    random.seed(1)
    cache = kind(max_size=5)
    for turn in range(3000):
        deed, key = random.choice(["set", "get", "pop", "popitem", "del", "setdefault", "clear"] if turn % 50 == 0 else ["set", "set", "set", "get", "pop", "popitem", "del", "setdefault"]), random.randrange(12)
        if deed == "set":
            cache[key] = turn
        elif deed == "get":
            cache.get(key)
        elif deed == "pop":
            cache.pop(key, None)
        elif deed == "popitem":
            if cache:
                gone, _ = cache.popitem()
                assert gone not in cache and cache.get(gone) is None
            else:
                try:
                    cache.popitem()
                except KeyError:
                    pass
                else:
                    raise AssertionError
        elif deed == "del" and key in cache:
            del cache[key]
        elif deed == "setdefault":
            cache.setdefault(key, turn)
        elif deed == "clear":
            cache.clear()
        assert len(cache) <= 5
        linked = [key for key, _ in cache._get_flattened_ll()][1:]
        assert sorted(linked) == sorted(cache) and len(cache._link_lookup) == len(cache), (linked, dict(cache))
order = LRU(max_size=2)
order["a"], order["b"] = 1, 2
order["a"]
order["c"] = 3
assert sorted(order) == ["a", "c"]
print("passed")
