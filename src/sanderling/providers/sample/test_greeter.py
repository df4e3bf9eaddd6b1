import unittest

from greeter import greet, greet_all


class GreeterTest(unittest.TestCase):
    def test_one_is_greeted_by_name(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")

    def test_everyone_is_greeted(self):
        self.assertEqual(greet_all(["Ada", "Grace"]), ["Hello, Ada!", "Hello, Grace!"])
