import unittest

from wordcount import count_words


class WordcountTest(unittest.TestCase):
    def test_words_are_counted_in_lower_case(self):
        self.assertEqual(count_words("The cat and the dog"), {"the": 2, "cat": 1, "and": 1, "dog": 1})


if __name__ == "__main__":
    unittest.main()
