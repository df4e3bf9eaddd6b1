"""What a tool server asks of the person: a form to be filled in, a page to be opened, whether it may start."""

import pytest
from tests.conftest import wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.test_approval import asked, drawn, enter, float_of, settled, wait_until_seen

FIELDS = [
    {
        "name": "name",
        "kind": "string",
        "label": "Name",
        "help": "As in your passport",
        "is_required": True,
    },
    {
        "name": "age",
        "kind": "integer",
        "label": "Age",
        "value": "42",
        "help": "a whole number, 1 to 100",
    },
    {"name": "agree", "kind": "boolean", "value": "false"},
    {
        "name": "pet",
        "kind": "choice",
        "choices": [{"value": "p1", "title": "Cats"}, {"value": "p2", "title": "Dogs"}],
    },
    {
        "name": "fish",
        "kind": "choices",
        "value": "f1",
        "choices": [{"value": "f1", "title": "Tuna"}, {"value": "f2"}],
    },
]


def form(**fields):
    return (
        asked(
            tool="everything",
            title="",
            kind="form",
            reason="Please provide your details.",
            subject="Name (needed), Age, agree, pet, fish",
            filetype="",
            choices=["once"],
            rule="",
            fields=FIELDS,
        )
        | fields
    )


@pytest.fixture(autouse=True)
def _keys_count_at_once(screen):
    count_keys_after(screen, 0)


def open_form(screen, **fields):
    screen.send(form(**fields))
    wait_until_seen(screen, "Fill in a form for everything?")
    enter(screen)
    screen.feed("a")
    screen.wait_for_screen("For everything")


def on(screen, label):
    screen.lua(
        """
        for lnum, line in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, true)) do
          if vim.startswith(line, ...) then
            vim.api.nvim_win_set_cursor(0, { lnum, 0 })
          end
        end
        """,
        label,
    )


def answers(screen):
    return screen.actions("answer_approval")


def choose(screen, *numbers):
    """Have vim.ui.select() choose these, one after the other."""
    screen.lua("_G.numbers = ...", list(numbers))
    screen.lua("""
      vim.ui.select = function(items, opts, on_choice)
        _G.items = vim.tbl_map(opts.format_item, items)
        local number = table.remove(_G.numbers, 1)
        on_choice(items[number], number)
      end
    """)


def test_a_form_says_who_asks_and_is_not_entered_by_itself(screen):
    screen.send(form())
    wait_until_seen(screen, "Fill in a form for everything?")
    text = drawn(screen)
    assert "Please provide your details." in text
    assert "Name (needed), Age, agree, pet, fish" in text
    assert not float_of(screen)["is_focused"]
    enter(screen)
    bar = screen.screen_text()
    assert "a fill in" in bar
    assert "d decline" in bar
    assert "would allow" not in bar


def test_what_is_filled_in_is_sent_as_text(screen):
    open_form(screen)
    assert screen.lines()[2].split() == ["Name", "*", "(nothing)"]
    screen.feed("<CR>Ada<CR>")
    wait_until(lambda: screen.lines()[2].split() == ["Name", "*", "Ada"])
    on(screen, "agree")
    screen.feed("<CR>")
    choose(screen, 2)
    on(screen, "pet")
    screen.feed("<CR>")
    assert screen.lua("return _G.items") == ["Cats", "Dogs"]
    choose(screen, 3, 2, 1)
    on(screen, "fish")
    screen.feed("<CR>")
    assert screen.lua("return _G.items") == ["Done", "☐ Tuna", "☑ f2"]
    text = "\n".join(screen.lines())
    assert "agree   yes" in text
    assert "pet     Dogs" in text
    assert "fish    f2" in text
    screen.feed("<C-s>")
    values = {"name": "Ada", "age": "42", "agree": "true", "pet": "p2", "fish": "f2"}
    (answer,) = wait_until(lambda: answers(screen))
    assert (answer["answer"], answer["values"]) == ("once", values)


def test_a_field_that_is_needed_keeps_the_form_open(screen):
    open_form(screen)
    screen.feed("<C-s>")
    screen.wait_for_screen("Name is required.")
    assert answers(screen) == []


@pytest.mark.parametrize("key, answer", [("d", "deny"), ("x", "cancel")])
def test_a_form_can_be_declined_or_left_without_a_word(screen, key, answer):
    open_form(screen)
    screen.feed(key)
    assert wait_until(lambda: answers(screen))[0]["answer"] == answer


def test_a_form_that_is_closed_answers_nothing_and_keeps_what_stood_in_it(screen):
    open_form(screen)
    screen.feed("<CR>Ada<CR>q")
    wait_until(lambda: "For everything" not in screen.screen_text())
    assert answers(screen) == []
    enter(screen)
    screen.feed("a")
    wait_until(lambda: screen.lines()[2].split() == ["Name", "*", "Ada"])


def test_what_does_not_fit_brings_the_form_back_with_the_reason(screen):
    open_form(screen)
    screen.feed("<CR>Ada<CR><C-s>")
    wait_until(lambda: answers(screen))
    screen.send(settled(), form(reason="Age must be a whole number, 1 to 100."))
    wait_until(lambda: "Age must be a whole number" in screen.lines()[0])
    assert screen.lines()[2].split() == ["Name", "*", "Ada"]


@pytest.mark.parametrize("end", ["settled", "closed"])
def test_a_form_goes_with_its_question(screen, end):
    open_form(screen)
    if end == "settled":
        screen.send(settled())
    else:
        screen.lua("require('sanderling').close()")
    wait_until(lambda: "For everything" not in screen.screen_text())


def test_the_keys_of_a_form_are_shown(screen):
    open_form(screen)
    screen.feed("g?")
    screen.wait_for_screen("change the field")


def link(url="https://example.org/pay?id=1"):
    return form(kind="link", fields=[], reason="To go on, confirm there.", subject=url)


def test_a_page_is_opened_only_when_the_person_says_so(screen):
    screen.lua("vim.ui.open = function(url) _G.opened = url end")
    screen.send(link())
    wait_until_seen(screen, "Open a page for everything?")
    assert "https://example.org/pay?id=1" in drawn(screen)
    enter(screen)
    assert screen.lua("return _G.opened") is None
    screen.feed("a")
    assert wait_until(lambda: answers(screen))[0]["answer"] == "once"
    assert screen.lua("return _G.opened") == "https://example.org/pay?id=1"


def test_what_is_no_address_of_a_page_is_not_opened(screen):
    screen.lua("vim.ui.open = function(url) _G.opened = url end")
    screen.send(link("file:///etc/passwd"))
    wait_until_seen(screen, "Open a page for everything?")
    enter(screen)
    screen.feed("a")
    screen.wait_for_message("Not a web address")
    assert screen.lua("return _G.opened") is None


def test_a_server_of_the_project_asks_before_it_starts(screen):
    question = form(
        kind="server",
        fields=[],
        reason="The project declares it in .mcp.json.",
        subject="npx -y server",
        choices=["once", "always"],
    )
    screen.send(question)
    wait_until_seen(screen, "Start the MCP server everything?")
    enter(screen)
    text = drawn(screen)
    for key in ("a start", "A always", "d deny"):
        assert key in text
    screen.feed("A")
    assert wait_until(lambda: answers(screen))[0]["answer"] == "always"
