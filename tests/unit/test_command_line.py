"""The commands of `sanderling`, and how they are found."""

from argparse import ArgumentParser
from importlib import import_module

import pytest

from sanderling.cli import COMMANDS
from sanderling.print_mode.arguments import print_parser


@pytest.mark.parametrize("name", sorted(name for name, (module, _) in COMMANDS.items() if module))
def test_each_command_of_the_table_has_a_help(name, capsys):
    parser = ArgumentParser(prog="sanderling")
    import_module(f"sanderling.cli.{COMMANDS[name][0]}").add(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: sanderling {name} ")


def test_the_help_lists_each_command_with_what_it_does():
    text = print_parser({name: what for name, (_, what) in COMMANDS.items()}).format_help()
    for name, (_, what) in COMMANDS.items():
        assert f"  {name:<10}{what}\n" in text
