"""A cart of parts."""

from shop import util


class Cart:
    def __init__(self, *sizes):
        self.sizes = sizes

    def total(self):
        return sum(util.parse_size(size) for size in self.sizes)

    def __str__(self):
        return util.words(len(self.sizes), "part")
