"""Questions that the model asks the user, and the question whether they accept its plan."""

import time

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.replies import DONE, reply, use
from tests.nvim.test_approval import asked, drawn, enter, float_of, settled, wait_until_seen

CACHE = {
    "name": "1",
    "kind": "choice",
    "label": "Which cache should replace the dict?",
    "choices": [
        {"value": "functools.lru_cache", "help": "Standard library, no expiry"},
        {
            "value": "cachetools.TTLCache",
            "help": "A new dependency, which expires its entries after a time that you choose",
        },
        {"value": "None"},
    ],
}
PARTS = {
    "name": "2",
    "kind": "choices",
    "label": "What else should change?",
    "choices": [{"value": "Tests"}, {"value": "Documentation"}, {"value": "Changelog"}],
}
NAME = {"name": "3", "kind": "string", "label": "What is the new function called?"}
PLAN = {
    "name": "plan",
    "kind": "choice",
    "choices": [
        {"value": "ask", "title": "Accept, ask mode", "help": "each change and command asks you"},
        {
            "value": "auto",
            "title": "Accept, auto mode",
            "help": "what the sandbox confines runs without asking",
        },
        {"value": "keep", "title": "Keep planning", "help": "stay in plan mode"},
    ],
}


def question(*fields, id_="q1", **more):
    return (
        asked(
            id_,
            tool="ask_user",
            title=fields[0].get("label", ""),
            kind="question",
            reason="",
            subject="\n\n".join(each.get("label", "") for each in fields),
            filetype="",
            choices=["once"],
            rule="",
            fields=[*fields],
        )
        | more
    )


def plan():
    return question(PLAN, kind="plan", subject="Replace the cache", title="Replace the cache")


@pytest.fixture
def screen(start_chat):
    child = start_chat()
    count_keys_after(child, 0)
    return child


def open_question(screen, event, text="The model asks"):
    screen.send(event)
    wait_until_seen(screen, text)
    enter(screen)


def answers(screen):
    return [
        (each["answer"], each.get("values") or {}, each.get("reason", ""))
        for each in screen.actions("answer_approval")
    ]


def answered(screen):
    return wait_until(lambda: answers(screen))


def test_a_question_of_the_model_shows_its_choices_and_takes_no_focus(screen):
    screen.send(question(CACHE))
    wait_until_seen(screen, "The model asks")
    shown = float_of(screen)
    assert not shown["is_focused"]
    text = drawn(screen)
    assert "The model asks?" not in text
    assert "Allow" not in text
    assert "Which cache should replace the dict?" in text
    for line in ("1  functools.lru_cache", "2  cachetools.TTLCache", "3  None"):
        assert line in text
    assert "dismiss" in text
    assert "deny" not in text.lower().replace("denies", "")


def test_one_key_gives_the_answer(screen):
    open_question(screen, question(CACHE))
    bar = screen.screen_text()
    assert "1-3 answer" in bar
    assert "c own words" in bar
    assert "d dismiss" in bar
    screen.feed("2")
    assert answered(screen) == [("once", {"1": "cachetools.TTLCache"}, "")]
    screen.send(settled())
    wait_until(lambda: float_of(screen) is None, "the float is gone")


def test_two_answers_are_named_as_a_range(screen):
    open_question(screen, question(CACHE | {"choices": CACHE["choices"][:2]}))
    assert "1-2 answer" in screen.screen_text()


def test_a_number_without_a_choice_gives_no_answer(screen):
    open_question(screen, question(CACHE))
    screen.feed("4")
    screen.feed("9")
    assert answers(screen) == []
    screen.feed("3")
    assert answered(screen) == [("once", {"1": "None"}, "")]


def test_the_keys_that_allow_other_requests_give_no_answer(screen):
    open_question(screen, question(CACHE))
    for key in ("a", "s", "A"):
        screen.feed(key)
    screen.feed(":AgentAllow<CR>")
    assert answers(screen) == []
    screen.wait_for_screen("1-3 gives an answer.")


def test_return_gives_the_answer_at_the_cursor(screen):
    open_question(screen, question(CACHE))
    screen.feed("<CR>")
    assert answers(screen) == []
    screen.feed("/TTL<CR>")
    screen.feed("<CR>")
    assert answered(screen) == [("once", {"1": "cachetools.TTLCache"}, "")]


def test_several_answers_are_marked_and_then_sent(screen):
    open_question(screen, question(PARTS))
    assert "1-3 mark" in screen.screen_text()
    screen.feed("<CR>")
    screen.wait_for_screen("1-3 marks an answer.")
    for key in ("3", "2", "1", "2"):
        screen.feed(key)
    wait_until(lambda: "2  ☐ Documentation" in float_of(screen)["lines"])
    assert "1  ☑ Tests" in float_of(screen)["lines"]
    assert answers(screen) == []
    screen.feed("<CR>")
    assert answered(screen) == [("once", {"2": "Tests\nChangelog"}, "")]


def test_own_words_go_with_the_marked_answers(screen):
    open_question(screen, question(PARTS))
    screen.feed("1")
    screen.feed("cand the type stubs<CR>")
    wait_until(lambda: "Your words: and the type stubs" in float_of(screen)["lines"])
    assert answers(screen) == []
    screen.feed("<CR>")
    assert answered(screen) == [("once", {"2": "Tests", "2_text": "and the type stubs"}, "")]


def test_own_words_are_an_answer_where_one_is_chosen(screen):
    open_question(screen, question(CACHE))
    screen.feed("c<CR>")
    assert answers(screen) == []
    screen.feed("cdiskcache<CR>")
    assert answered(screen) == [("once", {"1_text": "diskcache"}, "")]


def test_a_question_without_choices_is_answered_in_words(screen):
    open_question(screen, question(NAME))
    assert "<CR> write an answer" in screen.screen_text()
    screen.feed("<CR>slugify<CR>")
    assert answered(screen) == [("once", {"3_text": "slugify"}, "")]


def test_questions_come_one_after_the_other_and_are_sent_together(screen):
    open_question(screen, question(CACHE, PARTS, NAME), "The model asks (1 of 3)")
    screen.feed("1")
    screen.wait_for_screen("The model asks (2 of 3)")
    assert answers(screen) == []
    screen.feed("<BS>")
    screen.wait_for_screen("The model asks (1 of 3)")
    screen.feed("3")
    screen.wait_for_screen("The model asks (2 of 3)")
    screen.feed("2")
    screen.feed("<CR>")
    screen.wait_for_screen("The model asks (3 of 3)")
    assert answers(screen) == []
    screen.feed("<CR>slugify<CR>")
    assert answered(screen) == [
        ("once", {"1": "None", "2": "Documentation", "3_text": "slugify"}, "")
    ]


def test_the_next_question_takes_no_key_that_was_typed_before_it_was_seen(screen):
    open_question(screen, question(CACHE, CACHE | {"name": "2"}), "(1 of 2)")
    count_keys_after(screen, 60_000)
    screen.feed("1")
    screen.feed("1")
    assert answers(screen) == []
    assert "(1 of 2)" in screen.screen_text()
    count_keys_after(screen, 0)
    screen.feed("1")
    screen.wait_for_screen("(2 of 2)")
    count_keys_after(screen, 60_000)
    screen.feed("1")
    count_keys_after(screen, 0)
    assert answers(screen) == []
    screen.feed("2")
    assert answered(screen) == [
        ("once", {"1": "functools.lru_cache", "2": "cachetools.TTLCache"}, "")
    ]


@pytest.mark.parametrize(
    "text", prove_rest(["slugify", "delete it", "quux", "p=1", "c", "3 <retries> | a\\b", "g? /x"])
)
def test_typing_begins_the_answer_to_a_question_without_choices(screen, text):
    open_question(screen, question(NAME))
    assert "Type your answer here." in screen.screen_text()
    screen.feed(text.replace("<", "<lt>") + "<CR>")
    assert answered(screen) == [("once", {"3_text": text}, "")]


def test_a_question_without_choices_is_left_and_dismissed_by_keys_that_type_nothing(screen):
    open_question(screen, question(NAME))
    footer = screen.screen_text()
    assert "<M-d> dismiss" in footer
    assert "<Esc> later" in footer
    screen.feed("<Esc>")
    wait_until(lambda: float_of(screen) is None)
    enter(screen)
    screen.feed("dropped<Esc>")
    assert answers(screen) == []
    screen.feed("<M-d>")
    ((answer, _, _),) = answered(screen)
    assert answer == "deny"


def test_after_a_question_without_choices_the_keys_are_keys_again(screen):
    open_question(screen, question(NAME, CACHE), "(1 of 2)")
    screen.feed("slugify<CR>")
    screen.wait_for_screen("(2 of 2)")
    screen.feed("2")
    assert answered(screen) == [("once", {"3_text": "slugify", "1": "cachetools.TTLCache"}, "")]
    screen.send(settled())
    open_question(screen, asked("q9"), "Allow bash")
    screen.feed("a")
    wait_until(lambda: [each["id"] for each in screen.actions("answer_approval")][-1] == "q9")


@pytest.mark.parametrize("key", ["<M-d>", ":AgentDeny<CR>"])
def test_a_question_is_dismissed_without_an_answer(screen, key):
    open_question(screen, question(CACHE, NAME))
    screen.feed("1")
    screen.feed(key)
    ((answer, _, reason),) = answered(screen)
    assert (answer, reason) == ("deny", "")


def test_a_question_left_unanswered_keeps_what_was_marked(screen):
    open_question(screen, question(PARTS))
    screen.feed("3")
    screen.feed("q")
    wait_until(lambda: float_of(screen) is None)
    assert answers(screen) == []
    enter(screen)
    assert "3  ☑ Changelog" in float_of(screen)["lines"]
    screen.feed("<CR>")
    assert answered(screen) == [("once", {"2": "Changelog"}, "")]


def test_it_can_be_answered_from_the_prompt_without_typing_text(screen):
    screen.send(question(CACHE))
    wait_until_seen(screen, "The model asks")
    screen.feed("<Esc><C-w>a1")
    assert answered(screen) == [("once", {"1": "functools.lru_cache"}, "")]


def test_digits_in_the_prompt_are_text(screen):
    screen.feed("i")
    screen.send(question(CACHE))
    wait_until_seen(screen, "The model asks")
    screen.feed("123")
    assert answers(screen) == []
    screen.wait_for_screen("123")


@pytest.mark.parametrize("key, mode", prove_rest([("1", "ask"), ("2", "auto"), ("3", "keep")]))
def test_a_plan_is_accepted_for_a_mode_or_goes_on(screen, key, mode):
    open_question(screen, plan(), "Accept the plan?")
    text = screen.screen_text()
    assert "Replace the cache" in text
    for line in ("1  Accept, ask mode", "each change and command asks you", "3  Keep planning"):
        assert line in text
    screen.feed(key)
    assert answered(screen) == [("once", {"plan": mode}, "")]


def test_a_plan_is_commented_on(screen):
    open_question(screen, plan(), "Accept the plan?")
    assert "c comment" in screen.screen_text()
    screen.feed("cUse lru_cache.<CR>")
    assert answered(screen) == [("once", {"plan_text": "Use lru_cache."}, "")]


def test_other_keys_can_be_chosen_for_the_answers(start_screen):
    screen = start_screen(columns=120, lines=36)
    screen.setup(keys={"question_choice": ["j", "k"]})
    screen.command("AgentChat")
    count_keys_after(screen, 0)
    open_question(screen, question(CACHE))
    lines = float_of(screen)["lines"]
    assert "j  functools.lru_cache" in lines
    assert "   None" in lines, "there are fewer keys than answers"
    screen.feed("k")
    assert answered(screen) == [("once", {"1": "cachetools.TTLCache"}, "")]


@pytest.mark.parametrize("columns, rows", prove_rest([(60, 20), (80, 24), (120, 36)]))
def test_all_choices_are_on_the_screen_at_any_size(start_chat, columns, rows):
    screen = start_chat(columns=columns, lines=rows)
    count_keys_after(screen, 0)
    four = CACHE["choices"] + [{"value": "Something else", "help": "with its own words"}]
    screen.send(question(CACHE | {"choices": four}))
    wait_until_seen(screen, "The model asks")
    text = drawn(screen)
    for number, each in enumerate(four, 1):
        assert f"{number}  {each['value']}" in text
    assert float_of(screen)["config"]["height"] == len(float_of(screen)["lines"])
    enter(screen)
    text = screen.screen_text()
    assert "1-4" in text
    for number, each in enumerate(four, 1):
        assert f"{number}  {each['value']}" in text


# --- from the model to the model -----------------------------------------------------------------------------------------


def test_the_answers_reach_the_model(start_agent):
    questions = [
        {"question": "Which cache?", "choices": [{"label": "lru_cache"}, {"label": "TTLCache"}]},
        {"question": "What is it called?"},
    ]
    agent = start_agent(reply(use("ask_user", questions=questions)), DONE)
    agent.ask()
    agent.enter_question()
    agent.feed("2")
    agent.wait_for_screen("(2 of 2)")
    agent.answer_question("<CR>slugify<CR>")
    assert agent.results() == [
        "The user answers:\nWhich cache? → TTLCache\nWhat is it called? → slugify"
    ]


def test_accepting_a_plan_changes_the_mode(start_agent):
    agent = start_agent(reply(use("ask_user", plan="Replace the cache")), DONE)
    agent.command("AgentMode plan")
    agent.ask()
    agent.answer_question("2")
    assert agent.results()[0].startswith("The user accepts the plan and has switched to auto mode")
    assert agent.lua("return require('sanderling').status().mode") == "auto"


# --- a key that is held down ---------------------------------------------------------------------------------------------


def hold(screen, key, seconds, *, first_after=0.5):
    """Send a key as a terminal does while it is held down."""
    screen.feed(key)
    end = time.monotonic() + seconds
    time.sleep(first_after)
    while time.monotonic() < end:
        screen.feed(key)
        time.sleep(0.03)


@pytest.mark.parametrize("first_after", prove_rest([0.5, 0.25, 0.66]))
def test_a_key_that_is_held_down_answers_one_question(screen, first_after):
    count_keys_after(screen, 0.3)
    fields = [CACHE | {"name": str(number)} for number in (1, 2, 3)]
    open_question(screen, question(*fields), "(1 of 3)")
    wait_until_keys_count(screen)
    hold(screen, "1", 2, first_after=first_after)
    assert "(2 of 3)" in screen.screen_text()
    assert answers(screen) == []
    screen.feed("2")  # another key is meant
    screen.wait_for_screen("(3 of 3)")


def test_the_same_key_counts_again_after_a_pause(screen):
    count_keys_after(screen, 0.05)
    open_question(screen, question(CACHE, CACHE | {"name": "2"}), "(1 of 2)")
    wait_until_keys_count(screen)
    screen.feed("1")
    screen.wait_for_screen("(2 of 2)")
    time.sleep(0.2)  # the pause itself
    screen.feed("1")
    assert answered(screen) == [
        ("once", {"1": "functools.lru_cache", "2": "functools.lru_cache"}, "")
    ]


def wait_until_keys_count(screen):
    wait_until(lambda: screen.lua("return require('sanderling.approval.float').is_seen()"))
