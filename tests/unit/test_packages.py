"""Python packages that add tools and providers, installed in an environment of their own, with the real program."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, prove
from tests.homes import Home

EXAMPLE = ROOT / "doc/example-package"
TOOL = """
import msgspec
from sanderling.api import Effect, Outcome, tool

class Nothing(msgspec.Struct):
    pass

@tool(Nothing{effect})
async def {name}(args, context):
    "Do something."
    {body}
"""


class Installed(Home):
    """A home whose Sanderling is installed in an environment with packages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        environment = folder / "environment"
        venv.create(environment, symlinks=True)
        self.python = str(environment / "bin/python")
        (self.packages,) = environment.glob("lib/python*/site-packages")
        ours = (ROOT / "src", sysconfig.get_path("purelib"))
        (self.packages / "ours.pth").write_text("".join(f"{path}\n" for path in ours))
        self.environment.pop("PYTHONPATH", None)

    def add(
        self,
        name: str,
        modules: dict[str, str],
        *,
        place: Path | None = None,
        **groups: dict[str, str],
    ) -> None:
        """Put a package there as pip leaves it. `groups` has the entry points `tools` and `providers`."""
        place = place or self.packages
        metadata = self.packages / f"{name}-1.5.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (
                f"[sanderling.{group}]",
                *(f"{key} = {value}" for key, value in points.items()),
            )
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        for module, text in modules.items():
            (place / f"{module}.py").write_text(text)

    def add_tool(self, name: str = "mend", body: str = "", effect: str = "", **more: Any) -> None:
        body = body or f'return Outcome(content="", summary="{name} ran")'
        text = TOOL.format(name=name, body=body, effect=effect)
        self.add("extras", {"extras": text, **more}, tools={name: f"extras:{name}"})

    def ask(self, *uses: str, options: tuple[str, ...] = (), **inputs: Any) -> Any:
        """Have the scripted model use tools; return the printed JSON, with the tools' results."""
        steps = [{"tool_use": {"name": name, "input": inputs, "id": name}} for name in uses]
        replies = [{"step": steps}] if steps else []
        script = self.folder / "script.json"
        script.write_text(
            json.dumps({"version": 1, "reply": [*replies, {"step": [{"text": "Done."}]}]})
        )
        done = self.run(
            *("-p", "Go.", "--model", f"script:{script}", "--output-format", "stream-json"),
            *options,
        )
        self.errors = done.stderr
        assert done.returncode in (0, 3), done.stderr + done.stdout  # 3: a call was denied
        return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


@pytest.fixture
def with_example(home: Installed) -> Installed:
    shutil.copytree(EXAMPLE / "src/sanderling_example", home.packages / "sanderling_example")
    home.add(
        "sanderling-example",
        {},
        tools={"count_words": "sanderling_example.words:count_words"},
        providers={"parrot": "sanderling_example.parrot:Parrot"},
    )
    return home


# --- use -----------------------------------------------------------------------------------------------------------------


@prove
def test_the_example_is_built_installed_and_used(home):
    source = home.folder / "example"
    shutil.copytree(EXAMPLE, source)
    install = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    subprocess.run([sys.executable, *install, "--target", home.packages, source], check=True)
    assert "3 words" in home.ask("count_words", text="one two three")
    assert home.run("-p", "Hello.", "--model", "parrot:grey").stdout == "grey: Hello.\n"
    assert (
        "the tool 'count_words' of the package sanderling-example 1.0" in home.run("check").stdout
    )


def test_a_tool_of_a_package_is_used_without_a_question_as_its_effect_says(with_example):
    assert "3 words" in with_example.ask("count_words", text="one two three")


def test_a_provider_of_a_package_answers(with_example):
    done = with_example.run("-p", "Hello.", "--model", "parrot:grey")
    assert (done.stdout, done.stderr) == ("grey: Hello.\n", "")


def test_a_mistyped_provider_of_a_package_is_reported_with_its_name(with_example):
    done = with_example.run("-p", "Hello.", "--model", "parot:grey")
    assert "there is no provider 'parot'; did you mean 'parrot'?" in done.stderr


def test_a_table_names_the_wire_of_a_package(with_example):
    with_example.config.write_text(
        '[providers.pirate]\nwire = "parrot"\nbase_url = "http://127.0.0.1:9"\nmodel = "macaw"\n'
    )
    assert with_example.run("-p", "Ahoy.", "--model", "pirate").stdout == "macaw: Ahoy.\n"


def test_an_unknown_wire_is_reported_with_the_known_ones(with_example):
    with_example.config.write_text(
        '[providers.pirate]\nwire = "parot"\nbase_url = "http://127.0.0.1:9"\n'
    )
    done = with_example.run("-p", "Ahoy.", "--model", "pirate:macaw")
    assert done.returncode == 2
    assert "ollama, parrot, not 'parot'; did you mean 'parrot'?" in done.stderr


def test_the_check_lists_what_packages_add(with_example):
    told = with_example.run("check").stdout
    for thing in ("tool 'count_words'", "provider 'parrot'"):
        assert f"the {thing} of the package sanderling-example 1.5" in told


# --- permissions -----------------------------------------------------------------------------------------------------------


def test_a_tool_without_an_effect_is_asked_about(home):
    home.add_tool()
    assert "It does not declare what it does" in home.ask("mend")
    home.config.write_text('[[permissions]]\naction = "allow"\ntool = "mend"\n')
    assert "It does not declare what it does" in home.ask("mend")


def test_a_rule_allows_a_tool_of_a_package_by_its_name(home):
    home.add_tool(effect=RUNS)
    assert '"rule":"allow mend"}' in home.ask("mend")  # is offered, and nothing wider
    home.config.write_text('[[permissions]]\naction = "allow"\ntool = "mend"\n')
    assert "mend ran" in home.ask("mend")


RUNS = ', effect=lambda _, __: Effect("mend", "run", command="touch x")'


@pytest.mark.parametrize("mode", ["auto", "plan"])
@pytest.mark.parametrize(
    "effect, refusal",
    [
        ('"run", command="ls"', "may change things|runs programs outside the sandbox"),
        ('"write", path="x"', "is in plan mode|changes files, and the sandbox does not confine it"),
        ('"fetch", host="127.0.0.1"', "uses the network outside the sandbox"),
        ('"read", path="/etc/passwd"', "reads outside the project"),
    ],
)
def test_a_tool_of_a_package_is_not_judged_as_if_the_sandbox_confined_it(
    home, mode, effect, refusal
):
    home.add_tool(effect=f', effect=lambda _, __: Effect("mend", {effect})')
    home.config.write_text(f'mode = "{mode}"\n')
    said = home.ask("mend")
    assert "mend ran" not in said
    assert re.search(refusal, said)


def test_a_rule_for_commands_allows_no_tool_of_a_package(home):
    home.add_tool(effect=RUNS)
    rules = ("bash", "touch"), ("read", ""), ("edit", "")
    home.config.write_text(
        "".join(
            f'[[permissions]]\naction = "allow"\ntool = "{tool}"\ncommand = "{command}"\n'
            for tool, command in rules
        )
    )
    assert "No rule allows this tool" in home.ask("mend")


def test_a_rule_that_forbids_a_path_holds_for_a_tool_of_a_package(home):
    home.add_tool(effect=', effect=lambda _, __: Effect("mend", "read", path="secret")')
    assert "mend ran" in home.ask("mend")
    home.config.write_text('[[permissions]]\naction = "deny"\ntool = "read"\npath = "secret"\n')
    assert "A rule forbids this" in home.ask("mend")


def test_a_rule_forbids_a_tool_of_a_package(home):
    home.add_tool(effect=', effect=lambda _, __: Effect("mend", "read", path="README")')
    home.config.write_text('[[permissions]]\naction = "deny"\ntool = "mend"\n')
    assert "A rule forbids this" in home.ask("mend")


def test_a_tool_that_calls_itself_by_another_name_is_judged_by_its_own(home):
    home.add_tool(effect=', effect=lambda _, __: Effect("bash", "call")')
    home.config.write_text('[[permissions]]\naction = "deny"\ntool = "mend"\n')
    assert "A rule forbids this" in home.ask("mend")


def test_a_tool_that_says_it_is_elsewhere_is_asked_about(home):
    home.add_tool()
    module = home.packages / "extras.py"
    module.write_text(
        module.read_text() + "\nmend = msgspec.structs.replace(mend, is_elsewhere=True)\n"
    )
    assert "It does not declare what it does" in home.ask("mend")


def test_a_tool_of_a_package_can_be_disabled(home):
    home.add_tool()
    home.config.write_text('[tools]\ndisabled = ["mend"]\n')
    assert "There is no tool 'mend'" in home.ask("mend")


# --- what goes wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, problem",
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("def mend(:", "SyntaxError"),
        ("mend = 1", "1 was not made by `@tool`"),
        ("other = 1", "AttributeError"),
        ("API_VERSION = 2", "was written for version 2 of Sanderling's interface"),
        (TOOL.format(name="sew", effect="", body="") + "    ...\nmend = sew", "is called 'sew'"),
        (
            TOOL.format(name="mend", effect="", body="...").replace('"Do something."', "1"),
            "has no docstring",
        ),
    ],
)
def test_what_is_wrong_with_a_package_is_shown_with_its_name_and_the_session_goes_on(
    home, text, problem
):
    home.add("broken", {"broken": text}, tools={"mend": "broken:mend"})
    told = home.ask()
    assert "Done." in told
    shown = told + home.errors
    assert "The tool 'mend' of the package broken 1.5" in shown
    assert problem in shown.replace('\\"', '"')


@pytest.mark.parametrize(
    "name, problem",
    [
        ("read", "Sanderling has a tool of that name"),
        ("web_search", "Sanderling has a tool of that name"),
        ("code_nav", "Sanderling has a tool of that name"),
        ("mcp__notes__add", "single underscores"),
        ("Mend", "lowercase letters"),
        ("m" * 65, "at most 64"),
    ],
)
def test_a_tool_with_a_name_that_is_taken_or_wrong_is_not_used(home, name, problem):
    home.add_tool(name)
    told = home.ask()
    assert problem in told + home.errors


def test_of_two_packages_with_one_name_the_first_is_used(home):
    none = ', effect=lambda _, __: Effect("mend", "none")'
    home.add_tool(effect=none)
    body = 'return Outcome(content="the second ran")'
    text = TOOL.format(name="mend", body=body, effect=none)
    bird = "def Owl(endpoint, model): ..."
    home.add("more", {"more": text}, tools={"mend": "more:mend"}, providers={"owl": "birds:Owl"})
    home.add("birds", {"birds": bird}, providers={"owl": "birds:Owl"})
    asked = home.ask("mend")
    assert "mend ran" in asked
    assert "the second ran" not in asked
    checked = home.run("check").stdout
    problem = "is not used: another package has one of that name"
    assert f"the tool 'mend' of the package more 1.5 {problem}" in checked
    assert f"the provider 'owl' of the package more 1.5 {problem}" in checked
    assert f"the provider 'owl' of the package birds 1.5 {problem}" not in checked


@pytest.mark.parametrize(
    "body, words",
    [
        ("raise ValueError('torn')", "failed: ValueError: torn."),
        ("return 'text'", "it returned str instead of Outcome"),
    ],
)
def test_a_tool_that_fails_ends_only_its_call(home, body, words):
    home.add_tool(body=body, effect=', effect=lambda _, __: Effect("mend", "none")')
    told = home.ask("mend")
    assert words in told
    assert "the package extras 1.5" in told
    assert "Done." in told


def test_a_function_that_is_not_async_is_named(home):
    text = TOOL.format(
        name="mend",
        body='return Outcome(content="")',
        effect=', effect=lambda _, __: Effect("mend", "none")',
    )
    home.add("extras", {"extras": text.replace("async def", "def")}, tools={"mend": "extras:mend"})
    assert "failed: TypeError: mend() must be `async def`." in home.ask("mend")


def test_an_effect_that_fails_ends_only_its_call(home):
    home.add_tool(effect=", effect=lambda _, __: 1 / 0")
    told = home.ask("mend")
    assert "ZeroDivisionError" in told
    assert "Done." in told


@pytest.mark.parametrize(
    "text, problem",
    [
        ("def Owl(endpoint, model): raise KeyError('mouse')", "cannot be made: KeyError: 'mouse'"),
        ("def Owl(endpoint, model): return 1", "lacks "),
        ("Owl = 1", "1 cannot be called"),
        ("raise OSError('night')", "cannot be loaded: OSError: night"),
    ],
)
def test_a_provider_that_cannot_be_made_is_named(home, text, problem):
    home.add("birds", {"birds": text}, providers={"owl": "birds:Owl"})
    done = home.run("-p", "Hoo.", "--model", "owl:barn")
    assert done.returncode == 2
    assert "the provider 'owl' of the package birds 1.5" in done.stderr
    assert problem in done.stderr


@pytest.mark.parametrize(
    "name, problem",
    [
        ("openai", "Sanderling has a provider or a wire of that name"),
        ("chat", "Sanderling has a provider or a wire of that name"),
        ("auto", "Sanderling has a provider or a wire of that name"),
        ("a.b", "only letters"),
    ],
)
def test_a_provider_with_a_name_that_is_taken_or_wrong_is_an_error_of_the_check(
    home, name, problem
):
    home.add("birds", {"birds": "def Owl(endpoint, model): ..."}, providers={name: "birds:Owl"})
    checked = home.run("check")
    assert checked.returncode == 1
    assert f"the provider '{name}' of the package birds 1.5" in checked.stdout
    assert problem in checked.stdout


def test_a_name_of_a_provider_without_a_model_asks_for_one(with_example):
    done = with_example.run("-p", "Hello.", "--model", "parrot")
    assert done.returncode == 2
    assert "the provider 'parrot' needs a model" in done.stderr


def test_a_provider_that_fails_ends_the_turn_with_its_name(home):
    text = """
from sanderling.api import PlainProvider
class Owl(PlainProvider):
    def __init__(self, endpoint, model):
        super().__init__(model)
    async def stream(self, request):
        raise RuntimeError("asleep")
        yield
"""
    home.add("birds", {"birds": text}, providers={"owl": "birds:Owl"})
    done = home.run("-p", "Hoo.", "--model", "owl:barn")
    assert done.returncode == 1
    assert (
        "The provider 'owl' of the package birds 1.5 failed: RuntimeError: asleep." in done.stderr
    )


@prove
def test_a_package_that_never_loads_does_not_hold_the_session(home):
    home.add("slow", {"slow": "import time; time.sleep(600)"}, tools={"mend": "slow:mend"})
    told = home.ask()
    assert "Done." in told
    assert "The tools of packages are not used: no answer within 5 s." in told + home.errors


# --- only Sanderling's own environment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["PYTHONPATH", "current directory"])
def test_a_package_in_the_project_does_not_count(home, by):
    own, home.packages = home.packages, home.project
    home.add_tool()
    home.packages = own
    if by == "PYTHONPATH":
        home.environment["PYTHONPATH"] = str(home.project)
    assert "There is no tool 'mend'" in home.ask("mend")
    assert home.errors == ""


def test_a_module_from_elsewhere_is_not_loaded_for_an_installed_package(home):
    marker = home.folder / "loaded"
    home.add_tool()
    (home.packages / "extras.py").rename(home.packages / "other.py")
    place = home.folder / "first"
    place.mkdir()
    (place / "extras.py").write_text(f"open({str(marker)!r}, 'w')")
    home.environment["PYTHONPATH"] = str(place)
    told = home.ask()
    assert "is not in Sanderling's own environment" in told + home.errors
    assert not marker.exists()


def test_an_editable_install_does_not_count(home):
    place = home.folder / "elsewhere"
    place.mkdir()
    (home.packages / "editable.pth").write_text(f"{place}\n")
    home.add(
        "extras",
        {"extras": TOOL.format(name="mend", effect="", body="...")},
        place=place,
        tools={"mend": "extras:mend"},
    )
    told = home.ask()
    assert f"{place}/extras.py is not in Sanderling's own environment" in told + home.errors
