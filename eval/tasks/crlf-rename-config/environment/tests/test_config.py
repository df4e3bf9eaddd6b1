import unittest
from unittest import mock

from app.config import CFG_PATH, get_cfg


class ConfigTest(unittest.TestCase):
    def test_reads_the_name(self):
        self.assertEqual(get_cfg()['name'], 'demo')

    def test_a_path_given_counts(self):
        with mock.patch('app.config.CFG_PATH', 'other.ini'):
            self.assertEqual(get_cfg(CFG_PATH)['name'], 'demo')
