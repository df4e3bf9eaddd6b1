"""The help: where it answers the questions that users ask, and that it says each thing in one place."""

import re
from itertools import pairwise

import pytest
from tests.conftest import ROOT

HELP = (ROOT / "doc/sanderling.txt").read_text()
OTHERS = "".join(path.read_text() for path in sorted((ROOT / "doc").glob("sanderling-*.txt")))
TAG = re.compile(r"\*([^*\s|]+)\*(?=[\s*]|$)")
LINK = re.compile(r"\|([^|\s]+)\|")
CONTENTS = HELP[HELP.index("*sanderling-contents*") : HELP.index("*sanderling-introduction*")]

QUESTIONS = [
    ("How do I install it with lazy.nvim?", "sanderling-installation", "lazy = false"),
    ("What does it need?", "sanderling-requirements", "Python 3.11"),
    ("How do I uninstall it, and what must be deleted?", "sanderling-uninstall", "rm -rf"),
    ("How do I begin?", "sanderling-quick-start", "ANTHROPIC_API_KEY"),
    ("Which key sends the prompt?", "sanderling-keys", "send_insert"),
    ("How does <CR> send in insert mode?", "sanderling-keys", "preset = 'chat'"),
    ("How do I stop it?", "sanderling-keys", "<C-c>"),
    ("How do I attach a file or diagnostics?", "sanderling-mentions", "@diagnostics"),
    ("Can I write while it works?", "sanderling-waiting", "steering"),
    ("How do I run a command that the model sees?", "sanderling-run", "!pytest"),
    ("How do I write a slash command of my own?", "sanderling-slash-commands", "$ARGUMENTS"),
    ("How do I ask about selected lines?", "sanderling-ask", "AgentAsk"),
    ("How do I rewrite lines in place?", "sanderling-edit", "AgentEdit"),
    ("How do I accept or reject a hunk?", "sanderling-review", "]h"),
    ("How do I tell the model why I rejected a change?", ":AgentReject", "reason"),
    ("How do I undo what it did?", "sanderling-undo", ":AgentUndo"),
    ("How do I return to an earlier prompt?", "sanderling-undo", ":Agent-rewind"),
    ("How do I continue yesterday's conversation?", "sanderling-sessions", ":AgentResume"),
    ("How do I allow a command for good?", "sanderling-approvals", "always"),
    ("What is allowed, and how do I take it back?", "sanderling-rules-list", ":AgentRules"),
    ("How do I write a rule for `npm test`?", "sanderling-rules", "npm test"),
    ("What are ask, auto and plan mode?", "sanderling-modes", "read-only"),
    ("Can I use my Claude subscription?", "sanderling-subscriptions", ":AgentChat claude"),
    ("Where does my API key go?", "sanderling-keys-api", "keychain"),
    ("How do I use Ollama?", "sanderling-ollama", "qwen3-coder"),
    ("How do I use a server of my own?", "sanderling-provider-table", "base_url"),
    ("What does it cost, and how do I limit that?", "sanderling-limits", "budget_usd"),
    ("Why is the price unknown?", "sanderling-prices", "`?`"),
    ("How do I add an MCP server?", "sanderling-mcp-servers", "sanderling mcp add"),
    ("How does it search the web?", "sanderling-web-search", "searxng"),
    ("What can commands reach?", "sanderling-sandbox", "hidden"),
    ("How do I open the network?", "sanderling-sandbox-network", "proxy"),
    ("How does it reach a directory outside the project?", "sanderling-sandbox-grants", "read ="),
    ("Why does `git push` fail?", "sanderling-sandbox-remedies", "git push"),
    ("What is not protected?", "sanderling-sandbox-risks", "kernel"),
    ("Why is AGENTS.md ignored?", "sanderling-trust", "AGENTS.md"),
    ("Where is the settings file?", "sanderling-config", "config.toml"),
    ("How does it run in CI?", "sanderling-print", "exit status"),
    ("How do I use it on another machine?", "sanderling-remote", "ssh://"),
    ("How do I use it in Zed?", "sanderling-acp", "agent_servers"),
    ("What does the winbar show?", "sanderling-winbar", "ctx"),
    ("How do I show it in lualine?", "sanderling-statusline", "lualine"),
    ("Which plugins need settings?", "sanderling-plugins", "edgy.nvim"),
    ("'No inotify instances left'?", "sanderling-inotify", "max_user_instances"),
    ("What must I set in tmux?", "sanderling-tmux", "escape-time"),
    ("What is wrong here?", "sanderling-health", "checkhealth"),
    ("Where is everything stored?", "sanderling-files", "sessions/"),
    ("What is sent to the provider?", "sanderling-privacy", "prompts"),
    ("How do I react to the end of a turn?", "sanderling-autocommands", "AgentTurnEnded"),
]


def section(tag: str) -> str:
    """Return the text from the tag's line to the next tag of its kind: a section's, or a command's."""
    text = HELP if f"*{tag}*" in HELP else OTHERS
    start = re.search(rf"\*{re.escape(tag)}\*\s", text)
    assert start, tag
    behind = text[start.end() :]
    kind = r"sanderling-(?!option)[\w-]+" if tag.startswith("sanderling") else r":[^*\s]+"
    end = re.search(rf"\*{kind}\*\s", behind)
    return behind[: end.start()] if end else behind


def chapter(tag: str) -> str:
    """Return the text of the chapter with the tag."""
    parts = (HELP + OTHERS).split("=" * 78)
    return next(part for part in parts if f"*{tag}*" in part and part is not parts[1])


@pytest.mark.parametrize("tag, words", [pytest.param(*row[1:], id=row[0]) for row in QUESTIONS])
def test_a_question_is_answered_in_two_jumps_from_the_contents(tag, words):
    links = LINK.findall(CONTENTS)
    text = chapter(tag) if tag in links else section(tag)
    assert words in " ".join(text.split())
    chapters = [chapter(link) for link in links if link.startswith("sanderling")]
    assert tag in links or any(f"*{tag}*" in part or f"|{tag}|" in part for part in chapters)


def test_at_least_forty_questions_are_asked():
    assert len({question for question, _, _ in QUESTIONS}) >= 40


def test_the_help_has_at_most_four_thousand_lines():
    assert HELP.count("\n") <= 4000


def test_each_tag_is_defined_once_in_all_of_the_help():
    tags = TAG.findall(HELP + OTHERS)
    assert sorted(tags) == sorted(set(tags))


def test_the_contents_name_the_chapters_in_their_order():
    chapters = re.findall(r"={78}\n\d+\. [^*]*\*([\w-]+)\*", HELP)
    named = [link for link in LINK.findall(CONTENTS) if link in chapters]
    assert named == chapters
    numbers = [int(number) for number in re.findall(r"={78}\n(\d+)\. ", HELP)]
    assert all(after == before + 1 for before, after in pairwise(numbers))


@pytest.mark.parametrize("path", sorted((ROOT / "doc").glob("*.txt")), ids=lambda path: path.stem)
def test_each_page_is_in_the_contents_and_is_read_as_help(path):
    text = path.read_text()
    assert set(TAG.findall(text)) & set(LINK.findall(CONTENTS))
    assert text.splitlines()[-1].strip() == "vim:tw=78:ts=8:noet:ft=help:norl:"


def test_no_line_of_the_help_is_there_twice_in_a_row():
    lines = HELP.splitlines()
    assert [line for line, after in pairwise(lines) if line == after and line] == []


EXTENDING = (ROOT / "doc/sanderling-extending.txt").read_text()


@pytest.mark.parametrize("kind", ["command", "mention", "tool"])
def test_the_required_fields_of_the_lua_api_are_marked(kind):
    """Without them, registering is an error."""
    source = (ROOT / f"lua/sanderling/extend/{kind}.lua").read_text()
    entry = EXTENDING[EXTENDING.index(f"\n{kind}({{name}}, {{opts}})") :]
    required = re.findall(r"^  (\w+) = \{ '\w+', required = true \}", source, re.MULTILINE)
    assert required
    for field in required:
        words = re.search(rf"^\t  {field}\t(.*\n(?:\t\t\t.*\n)*)", entry, re.MULTILINE)
        assert words
        assert "required" in words[1], field


def test_every_event_for_callbacks_is_listed():
    known = (ROOT / "lua/sanderling/extend/event_types.lua").read_text()
    listed = EXTENDING[EXTENDING.index("*sanderling-lua-events*") :].partition("They are:")[2]
    words = re.findall(r"\w+", listed.partition(".")[0])
    assert sorted(words) == sorted(re.findall(r"(\w+) = true", known))


def test_every_built_in_part_of_the_statusline_is_listed():
    source = (ROOT / "lua/sanderling/extend/status.lua").read_text()
    names = source[source.index("M.BUILT_IN = {") :].partition("}")[0]
    listed = EXTENDING.partition("Built in: ")[2].partition(".")[0]
    assert re.split(r",\s+", listed) == re.findall(r"'(\w+)'", names)


def test_a_package_can_be_installed_into_an_environment_without_pip():
    packages = EXTENDING[EXTENDING.index("*sanderling-packages*\n") :]
    assert "\n    uv pip install --python PYTHON PACKAGE\n" in packages


def test_no_line_of_the_help_is_wider_than_a_help_window():
    lines = (HELP + OTHERS).splitlines()
    assert [line for line in lines if len(line.expandtabs(8)) > 78] == []


def test_every_file_ends_with_the_options_of_a_help_buffer():
    modeline = "vim:tw=78:ts=8:noet:ft=help:norl:"
    last_lines = {
        path.name: path.read_text().splitlines()[-1] for path in (ROOT / "doc").glob("*.txt")
    }
    assert {name: line for name, line in last_lines.items() if line.strip() != modeline} == {}


def test_every_link_to_a_topic_of_sanderlings_leads_somewhere():
    tags = {*TAG.findall(HELP + OTHERS)}
    links = re.findall(r"(?<![\w|`])\|([^|\s]+)\|", HELP + OTHERS)
    own = {link for link in links if re.match(r"sanderling-|:Agent", link)}
    assert own - tags == set()
