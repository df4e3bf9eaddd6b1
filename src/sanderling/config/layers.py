"""The layers of settings and how they are merged: the user's file, a trusted project's, `setup()` in Neovim, the command line."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from sanderling.config import LEVELS, KeyPath, Layer, Settings, Table, state_dir
from sanderling.config.expansion import variables_in
from sanderling.config.file import SettingLocation, fields_of, read_user_file, user_servers_file
from sanderling.config.server_names import fitted_server
from sanderling.errors import ConfigError
from sanderling.protocol.modes import MODES_BY_STRICTNESS, NETWORKS_BY_STRICTNESS


def _lower(own: float, wanted: float) -> float:
    """Return the lower of two limits; 0 means none."""
    return min(own, wanted) if own and wanted else own or wanted


def _stronger(own: Any, wanted: Any) -> Any:
    return LEVELS[min(LEVELS.index(own), LEVELS.index(wanted))]


def _more(own: Iterable[str], wanted: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*own, *wanted)))


def _stricter_mode(own: Any, wanted: Any) -> Any:
    return min(own, wanted, key=MODES_BY_STRICTNESS.index)


def _stricter_network(own: Any, wanted: Any) -> Any:
    return min(own, wanted, key=NETWORKS_BY_STRICTNESS.index)


TIGHTER: Mapping[tuple[str, ...], Callable[[Any, Any], Any]] = {
    ("max_calls",): _lower,
    ("budget_usd",): _lower,
    **{
        ("delegate", key): _lower
        for key in ("tokens", "tree_tokens", "seconds", "calls", "running")
    },
    ("sandbox", "min_level"): _stronger,
    ("mode",): _stricter_mode,
    ("network",): _stricter_network,
    ("tools", "disabled"): _more,
}
"""The keys that restrict the agent, and how to choose the stricter of two values."""
ADDING = ("permissions", "hooks")
"""The keys whose lists add up over the layers."""


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """
    The layers of a session, each without mistakes. A later layer overrides earlier ones.

    Rules add up. A key that restricts the agent gets the stricter of the user's and the project's values. Only the command line overrides
    that, because it is for this one run.
    """

    state_dir: str
    log_file: str = ""
    plugins: Mapping[str, Layer] = MappingProxyType({})  # of MCP servers, by the plugin's name
    servers: Layer = Layer()  # the user's mcp.json
    file: Layer = Layer()
    project: Layer = Layer()
    setup: Layer = Layer()
    command_line: Layer = Layer()

    def read_again(self) -> "Layers":
        """
        Return these layers with the user's files as they are now.

        Raises:
            ConfigError: names what is wrong in them.
        """
        return replace(self, servers=_read_user_servers(), file=read_user_file())

    def settings(self) -> Settings:
        """
        Return the settings in effect.

        Raises:
            ConfigError: settings that are valid on their own do not fit together.
        """
        settings = self.merged()
        try:
            check_script(settings)
        except ConfigError as error:
            raise ConfigError(f"{place_of(error.path, settings.layers)}: {error}") from error
        return settings

    def _used_plugins(self, own: Table) -> list[Layer]:
        """Return the layers of the plugins that are not disabled, without servers too similar to the user's `own`, or to another one."""
        parts = {fitted_server(name): name for name in _servers_in(own)}
        disabled = _get(_merged((Layer("", own), self.command_line)), ("plugins", "disabled"), ())
        used = list[Layer]()
        taken = set[str]()
        for plugin, layer in self.plugins.items():
            if plugin in disabled:
                continue
            servers = {
                name: table
                for name, table in _servers_in(_without_declared(layer, own).options).items()
                if name not in taken and parts.setdefault(fitted_server(name), name) == name
            }
            taken |= servers.keys()
            used.append(replace(layer, options={"mcp": {"servers": servers}} if servers else {}))
        return used

    def _own_servers(self, person: Table, plugins: Sequence[Layer]) -> Table:
        """
        Return the user's servers, and those of the used `plugins`.

        A table of the user's adds to the paths of a plugin's server, and has no effect while the plugin is not used.
        """
        of_plugins = _servers_in(_merged(plugins))
        return {
            name: _with_paths(table, of_plugins.get(name, {}))
            for name, table in _servers_in(person).items()
            if not _only_changes_plugin(name, table)
        }

    def merged(self) -> Settings:
        """Return the settings in effect, whether they fit together or not."""
        in_settings = _merged((self.file, self.setup))
        in_json = _without_declared(self.servers, in_settings)
        plugins = self._used_plugins(upon(in_json.options, in_settings))
        person = _merged((*plugins, in_json, self.file, self.setup))
        free = _free(self.project.options)
        own = self._own_servers(person, plugins)
        servers = _get(self.project.options, ("mcp", "servers"), {})
        theirs = {name: server for name, server in servers.items() if name not in own}
        layers = (
            *plugins,
            in_json,
            self.file,
            replace(self.project, options={**free, "mcp": {"servers": theirs}} if theirs else free),
            self.setup,
            replace(self.project, options=bounds_in(self.project.options, person)),
            self.command_line,
        )
        fields = {
            **fields_of(_merged(layers)),
            "state_dir": self.state_dir,
            "log_file": self.log_file,
            "mcp_servers": own,
            "project_mcp_servers": theirs,
        }
        return replace(msgspec.convert(fields, Settings), layers=layers)


def own_layers(environment: Mapping[str, str] = os.environ) -> Layers:
    """
    Return the user's own settings, with the editor's defaults.

    Raises:
        ConfigError: names what is wrong, with file and line.
    """
    return Layers(
        state_dir=str(state_dir(environment)),
        servers=_read_user_servers(environment),
        file=read_user_file(environment),
    )


def own_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """
    Return the user's own settings, for commands that concern no project.

    Raises:
        ConfigError: as `own_layers`.
    """
    return own_layers(environment).settings()


def left_out_of_plugins(layers: Layers, settings: Settings) -> list[str]:
    """Return the servers of plugins that are not used although the plugin is."""
    enabled = (
        each for name, each in layers.plugins.items() if name not in settings.plugins_disabled
    )
    names = (name for layer in enabled for name in _servers_in(layer.options))
    return [name for name in names if name not in settings.mcp_servers]


def tables_without_plugin(layers: Layers, settings: Settings) -> list[str]:
    """Return the user's tables for servers of plugins that have no effect, because there is no such server."""
    tables = _servers_in(_merged((layers.servers, layers.file, layers.setup)))
    disabled = tuple(f"{plugin}." for plugin in settings.plugins_disabled)
    return [
        name
        for name, table in tables.items()
        if _only_changes_plugin(name, table)
        and name not in settings.mcp_servers
        and not name.startswith(disabled)
    ]


def check_script(settings: Settings) -> None:
    """
    Check that the provider "scripted" has a script.

    Raises:
        ConfigError: it has none.
    """
    if settings.provider == "scripted" and not settings.script:
        raise ConfigError("provider 'scripted' needs 'script', the path of its file", ("provider",))


def guards_in(layer: Layer) -> Layer:
    """Return the part of the layer that only restricts the agent, compared to the defaults."""
    options = bounds_in(layer.options, {})
    rules = cast("list[Table]", layer.options.get("permissions", []))
    if strict := [rule for rule in rules if rule.get("action") != "allow"]:
        options["permissions"] = strict
    return replace(layer, options=options)


def bounds_in(options: Table, person: Table) -> Table:
    """Return the part of `options` that restricts the agent more than the user's settings do."""
    tight = Table()
    for path, tighter in TIGHTER.items():
        own = _get(person, path, getattr(_DEFAULTS, "_".join(path)))
        wanted = _get(options, path, None)
        if wanted is not None and (bound := tighter(own, wanted)) != own:
            tight = upon(tight, {path[0]: {path[1]: bound} if path[1:] else bound})
    return tight


def upon(lower: Table, upper: Table) -> Table:
    """Merge two tables. `upper` overrides `lower`, also in nested tables; permission rules and hooks add up."""
    return _upon(lower, upper, ())


def _upon(lower: Table, upper: Table, above: KeyPath) -> Table:
    joined = dict(lower)
    for key, value in upper.items():
        before = lower.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            joined[key] = _upon(cast("Table", before), cast("Table", value), (*above, key))
        elif isinstance(before, list) and ((*above, key)[0] in ADDING):
            joined[key] = [*cast("list[Any]", before), *value]
        else:
            joined[key] = value
    return joined


def place_of(path: KeyPath, layers: Sequence[Layer]) -> SettingLocation:
    """Return the place that the value at `path` comes from."""
    match path:
        case ("permissions" as key, int() as number, *rest) | (
            "hooks" as key,
            str(),
            int() as number,
            *rest,
        ):
            above = path[: path.index(number, 1)]
            assert key in ADDING
            for layer in layers:
                count = len(_get(layer.options, above, ()))
                if number < count:
                    return _place_in(layer, (*above, number, *rest))
                number -= count
        case _:
            for end in range(len(path), 0, -1):
                for layer in reversed(layers):
                    if _get(layer.options, path[:end], None) is not None:
                        return _place_in(layer, path)
    return SettingLocation()


def reference_at(path: KeyPath, layers: Sequence[Layer]) -> str:
    """Return the text at `path` as it was written if it names variables, because their values may be secret; else ""."""
    for layer in reversed(layers):
        if _get(layer.options, path, None) is not None:
            written = _get(layer.written, path, "")
            return written if isinstance(written, str) and variables_in(written) else ""
    return ""


def _place_in(layer: Layer, path: KeyPath) -> SettingLocation:
    from sanderling.config.lines import line_finder  # rarely needed

    return SettingLocation(layer.origin, line_finder(layer.text)(path))


def _read_user_servers(environment: Mapping[str, str] = os.environ) -> Layer:
    """
    Return the layer of the user's mcp.json.

    Raises:
        ConfigError: names every mistake with file and line.
    """
    if not user_servers_file(environment).exists():
        return Layer()
    from sanderling.config.servers_file import read_user_servers  # only needed if there is a file

    return read_user_servers(environment)


def _without_declared(servers: Layer, options: Table) -> Layer:
    """Return the layer of mcp.json without the servers for which settings have another command or URL."""
    declared = _get(servers.options, ("mcp", "servers"), {})
    rest = {
        name: each
        for name, each in declared.items()
        if not {"command", "url"} & {*_get(options, ("mcp", "servers", name), {})}
    }
    return replace(servers, options={"mcp": {"servers": rest}} if rest else {})


def _only_changes_plugin(name: str, table: Table) -> bool:
    """Recognize a table for the server of a plugin, which is named `PLUGIN.SERVER`, without the plugin's own part."""
    return "." in name and not {"command", "url"} & {*table}


def _servers_in(options: Table) -> Table:
    return _get(options, ("mcp", "servers"), {})


def _with_paths(table: Table, lower: Table) -> Table:
    """Return a server's table with the paths of a lower one, too."""
    paths = {key: _more(lower[key], table[key]) for key in ("paths", "write_paths") if key in lower}
    return {**table, **paths}


def _merged(layers: Iterable[Layer]) -> Table:
    return reduce(upon, (layer.options for layer in layers), {})


def _free(options: Table) -> Table:
    others = {path[0] for path in TIGHTER} | {"mcp"}
    return {key: value for key, value in options.items() if key not in others}


def _get(table: Any, path: KeyPath, default: Any) -> Any:
    for key in path:
        try:
            table = table[key]
        except (KeyError, IndexError, TypeError):
            return default
    return table


_DEFAULTS = Settings("")
