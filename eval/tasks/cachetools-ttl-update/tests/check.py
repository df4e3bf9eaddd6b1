import random
from cachetools import TTLCache
class Clock:
    now = 0
    def __call__(self):
        return self.now
clock = Clock()
cache = TTLCache(maxsize=10, ttl=10, timer=clock)
for key in "abcd":
    cache[key] = key
cache["b"] = 2
assert sorted(cache) == ["a", "b", "c", "d"] and list(cache)[-1] == "b"
random.seed(3)
cache, truth = TTLCache(maxsize=1000, ttl=10, timer=clock), {}
for turn in range(2000):
    key = random.randrange(15)
    clock.now += random.choice((0, 0, 1, 3))
    deed = random.choice(("set", "set", "set", "get", "del", "expire"))
    alive = {k: v for k, (v, end) in truth.items() if clock.now < end}
    if deed == "set":
        cache[key] = turn
        truth[key] = turn, clock.now + 10
    elif deed == "get":
        assert cache.get(key) == alive.get(key), turn
    elif deed == "del" and key in alive:
        del cache[key]
        del truth[key]
    elif deed == "expire":
        cache.expire()
    alive = {k: v for k, (v, end) in truth.items() if clock.now < end}
    listed = list(cache)
    assert len(listed) == len(set(listed)) and set(listed) == set(alive), (turn, listed, alive)
    assert len(cache) == len(alive) and cache.currsize == len(alive), turn
    ends = [truth[k][1] for k in listed]
    assert ends == sorted(ends), turn
print("passed")
