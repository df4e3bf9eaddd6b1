import unittest

from retry import backoff, retry


class RetryTest(unittest.TestCase):
    def test_delays_double(self):
        self.assertEqual(list(backoff(1, 8)), [1, 2, 4, 8])

    def test_the_longest_is_the_last(self):
        self.assertEqual(list(backoff(3, 10)), [3, 6, 10])

    def test_a_success_is_returned(self):
        self.assertEqual(retry(lambda: 1, [1], lambda _: None), 1)

    def test_the_last_error_is_raised(self):
        def fails():
            raise OSError

        with self.assertRaises(OSError):
            retry(fails, [1, 2], lambda _: None)


if __name__ == "__main__":
    unittest.main()
