import unittest

from shop.util import UNITS, clean, format_size, parse_size


class SizesTest(unittest.TestCase):
    def test_sizes_are_read(self):
        self.assertEqual(parse_size(" 2   kB "), 2000)

    def test_sizes_are_shown(self):
        self.assertEqual(format_size(UNITS["MB"]), "1.0 MB")

    def test_blanks(self):
        self.assertEqual(clean(" a  b"), "a b")
