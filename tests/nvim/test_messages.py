"""Messages: whole where a plugin shows them, in one line and without <Enter> where Neovim does, and with nothing hidden in them."""

LONG = "The installation is not complete, and quite a bit longer than eighty cells: " + "x" * 200
TEXT = LONG + "\nRun :AgentInstall.\u3164"

REPLACE = """
  vim.notify = function(...)
    _G.told = { ... }
  end
"""


def tell(child, *args):
    child.lua("require('sanderling.ui.message').tell(...)", *args)


def test_a_plugin_that_shows_messages_gets_all_of_it_and_a_title(child):
    child.lua(REPLACE)
    tell(child, TEXT, 3)
    shown = TEXT.replace("\u3164", "<U+3164>")
    assert child.lua("return _G.told") == [shown, 3, {"title": "Sanderling"}]


def test_neovim_itself_shows_the_first_line_as_far_as_it_fits(child):
    tell(child, "one\u202etwo\nthree")
    assert not child.is_blocked()
    assert child.messages().strip() == "one·two …"
    tell(child, TEXT)
    assert not child.is_blocked()


def test_errors_of_options_reach_the_plugin_whole(child):
    child.lua(REPLACE)
    child.setup(keys={"answer_once": "<M-a>"})
    text = child.lua("return _G.told[1]")
    assert "option 'keys.answer_once' must be a key without Alt or Escape" in text
    assert text.endswith('not "<M-a>"')
