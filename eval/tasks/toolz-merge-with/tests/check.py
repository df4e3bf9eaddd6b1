from toolz import curried, merge_with
from toolz.dicttoolz import merge_with as plain

def same(values):
    return values

first = merge_with(same, {"a": 1}, {"a": 2}, {"a": 3})
assert first == {"a": [1, 2, 3]}, first
second = merge_with(same, {"a": 10}, {"b": 20})
assert second == {"a": [10], "b": [20]}, second
second["a"].append(99)
assert first == {"a": [1, 2, 3]}, first
assert merge_with(same, {"a": 5}) == {"a": [5]}
assert merge_with(sum, [{1: 1, 2: 2}, {1: 10}, {1: 100, 3: 3}]) == {1: 111, 2: 2, 3: 3}
one, two = merge_with(same, {"x": 1, "y": 2}).values()
assert one is not two
from collections import OrderedDict
made = merge_with(max, {"b": 1}, {"a": 2}, factory=OrderedDict)
assert isinstance(made, OrderedDict) and list(made) == ["b", "a"]
assert curried.merge_with(sum)({1: 1}, {1: 2}) == {1: 3}
assert plain is merge_with
source = {"a": [1]}
merge_with(same, source, {"a": [2]})
assert source == {"a": [1]}
print("passed")
