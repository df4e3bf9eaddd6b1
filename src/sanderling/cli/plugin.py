"""`sanderling plugin add|remove|enable|disable|list|check`: Agent Plugins, what is in them, and what is wrong with them. Nothing of a plugin runs here."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from sanderling.cli.alone import add_options, list_alone, refuse_options
from sanderling.cli.streams import say
from sanderling.config.file import shown_path
from sanderling.config.layers import own_layers
from sanderling.errors import ConfigError, SanderlingError
from sanderling.json_lines import for_terminal
from sanderling.project.plugins.changing import add_plugin, remove_plugin
from sanderling.project.plugins.disabling import disable_plugin
from sanderling.project.plugins.installed import read_plugin, shown_plugin, shown_plugins
from sanderling.project.root import project_root
from sanderling.protocol.requests import ShownPlugin
from sanderling.text import did_you_mean, visible_line

EXIT_PROBLEMS, EXIT_USAGE = 1, 2
NONE = "No plugins: `:help sanderling-agent-plugins` says how to add one."


def add(commands: Any) -> None:
    plugin = commands.add_parser(
        "plugin",
        description="List, add, check and remove plugins with skills and tool servers. Without an action, list them."
        " `:help sanderling-agent-plugins` describes them.",
        epilog=f"The exit status is 0; {EXIT_PROBLEMS} if `check` finds a problem; {EXIT_USAGE} for a mistake.",
    )
    list_alone(plugin, list_them)
    actions = plugin.add_subparsers(metavar="{add,remove,enable,disable,list,check}")
    action = actions.add_parser("add", help="copy a plugin, and show what is in it")
    action.add_argument("directory", metavar="PATH", help="the directory with its plugin.json")
    action.set_defaults(run=add_it)
    action = actions.add_parser("remove", help="remove a plugin that was added")
    action.add_argument("name", metavar="NAME")
    action.add_argument("--data", action="store_true", help="remove the data of its servers, too")
    action.set_defaults(run=remove_it)
    for name, is_disabled in (("enable", False), ("disable", True)):
        action = actions.add_parser(name, help=f"{name} a plugin, in config.toml")
        action.add_argument("name", metavar="NAME")
        action.set_defaults(run=change_it, is_disabled=is_disabled)
    action = actions.add_parser("list", help="list the plugins, and what is in them")
    action.set_defaults(run=list_them)
    check = actions.add_parser("check", help="explain what is wrong with plugins")
    check.add_argument("directory", nargs="?", default="", metavar="PATH", help="default: all")
    check.set_defaults(run=check_them)
    for each in (action, check):
        add_options(each)


def add_it(arguments: argparse.Namespace) -> int:
    try:
        refuse_options(arguments, "project", "json")
        settings = own_layers().settings()
        plugin, left_out = add_plugin(arguments.directory, settings.state_dir)
    except SanderlingError as error:
        return _fail(error)
    shown = shown_plugin(plugin, settings.plugins_disabled)
    _print([f"Added {_title(shown)}.", *_parts(shown)])
    for name in left_out:
        say(f"{plugin.name}: {name} was left out: it is no file of the plugin")
    for problem in shown.problems:
        say(f"{plugin.name}: {problem}")
    return 0


def remove_it(arguments: argparse.Namespace) -> int:
    try:
        refuse_options(arguments, "project", "json")
        state_dir = own_layers().settings().state_dir
        path = remove_plugin(arguments.name, state_dir, with_data=arguments.data)
    except SanderlingError as error:
        return _fail(error)
    _print([f"Removed {shown_path(path)}."])
    return 0


def change_it(arguments: argparse.Namespace) -> int:
    try:
        refuse_options(arguments, "project", "json")
        known = [each.name for each in shown_plugins(own_layers().settings(), project_root(""))]
        if arguments.name not in filter(None, known):
            meant = did_you_mean(arguments.name, filter(None, known))
            raise ConfigError(
                f"there is no plugin '{arguments.name}'{meant or ': `sanderling plugin list` lists them'}"
            )
        disable_plugin(arguments.name, is_disabled=arguments.is_disabled)
    except SanderlingError as error:
        return _fail(error)
    return 0


def list_them(arguments: argparse.Namespace) -> int:
    try:
        shown = shown_plugins(own_layers().settings(), project_root(arguments.project))
    except SanderlingError as error:
        return _fail(error)
    if arguments.json:
        _print_json(shown)
    else:
        _print([line for each in shown for line in (_title(each), *_parts(each))] or [NONE])
    return 0


def check_them(arguments: argparse.Namespace) -> int:
    try:
        settings = own_layers().settings()
        if arguments.directory:
            found = read_plugin(arguments.directory, settings.state_dir)
            shown = [shown_plugin(found, ())]
        else:
            shown = shown_plugins(settings, project_root(arguments.project))
    except SanderlingError as error:
        return _fail(error)
    if arguments.json:
        _print_json(shown)
    else:
        rows = [(each.name or each.path, each.problems or ("ok",)) for each in shown]
        _print([f"{name}: {words}" for name, said in rows for words in said] or [NONE])
    return EXIT_PROBLEMS if any(each.problems for each in shown) else 0


def _title(plugin: ShownPlugin) -> str:
    """Return the name, version and place of a plugin, or why it is none."""
    if not plugin.name:
        return f"{plugin.path} is not used: {plugin.problems[0]}"
    whether = " (disabled)" if plugin.is_disabled else ""
    return " ".join(filter(None, (plugin.name, plugin.version, f"in {plugin.path}"))) + whether


def _parts(plugin: ShownPlugin) -> list[str]:
    skills = [f"  skill   {each}" for each in plugin.skills]
    return [*skills, *(f"  server  {each}" for each in plugin.servers)]


def _print(lines: Sequence[str]) -> None:
    sys.stdout.writelines(f"{visible_line(line)}\n" for line in lines)


def _print_json(shown: Sequence[ShownPlugin]) -> None:
    sys.stdout.writelines(f"{for_terminal(each)}\n" for each in shown)


def _fail(error: SanderlingError) -> int:
    say(str(error))
    return EXIT_USAGE
