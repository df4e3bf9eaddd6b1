"""/login and /logout: the key goes to the host, and is kept nowhere here."""

import os
import shutil
import subprocess

import pytest
from tests.conftest import prove_rest, wait_until
from tests.loopback import LoopbackServer, Reply, done, text

from sanderling.providers.endpoint import presets

KEY = "sk-ant-secret-0123"

CATCH_REQUESTS = """
  _G.requests = {}
  require('sanderling.host').request = function(request, on_answer)
    table.insert(_G.requests, { request = request, on_answer = on_answer })
  end
"""


@pytest.fixture
def screen(start_chat):
    child = start_chat()
    child.lua(CATCH_REQUESTS)
    return child


def requests(screen):
    return screen.lua("return vim.tbl_map(function(each) return each.request end, _G.requests)")


def answer(screen, **result):
    screen.lua("_G.requests[#_G.requests].on_answer(...)", result)


def is_asking(screen):
    return screen.mode() == "c"


def traces(screen):
    """All that Neovim keeps and shows, as text, but for what was inserted last (`".`), which only the next insert replaces."""
    return screen.lua("""
      local kept = { vim.fn.execute('messages'), vim.fn.execute('registers "*+-/:=0123456789abcdx') }
      for _, name in ipairs({ 'cmd', 'search', 'expr', 'input', 'debug' }) do
        table.insert(kept, vim.fn.execute('history ' .. name))
      end
      for _, buf in ipairs(vim.api.nvim_list_bufs()) do
        vim.list_extend(kept, vim.api.nvim_buf_get_lines(buf, 0, -1, true))
      end
      vim.list_extend(kept, require('sanderling.prompt.history').entries())
      vim.list_extend(kept, require('sanderling.host.log').lines)
      return table.concat(kept, '\\n')
    """)


def give_key(screen, key=KEY):
    answer(screen, backend="the keychain of the test")
    wait_until(lambda: is_asking(screen))
    screen.feed(f"{key}<CR>")


def bottom_row(screen):
    cells = "map(range(1, &columns), {_, col -> screenstring(&lines, col)})->join('')"
    return screen.rpc.request("nvim_eval", cells)


@pytest.mark.parametrize("login", ["i/login<C-s>", ":Agent login<CR>"])
def test_login_asks_for_the_key_and_gives_it_to_the_host(screen, login):
    screen.feed(login)
    wait_until(lambda: requests(screen) == [{"type": "login"}])
    give_key(screen)
    wait_until(lambda: requests(screen)[1:] == [{"type": "login", "key": KEY}])
    answer(screen)
    screen.wait_for_transcript("API key stored in the keychain of the test. /logout removes it.")
    assert KEY not in traces(screen)
    assert KEY not in screen.screen_text()
    assert "/login" not in screen.lua("return require('sanderling.prompt.history').entries()")


@pytest.mark.parametrize("login", ["i/login mistral<C-s>", ":Agent login mistral<CR>"])
def test_each_provider_has_a_key_of_its_own(screen, login):
    screen.feed(login)
    wait_until(lambda: requests(screen) == [{"type": "login", "provider": "mistral"}])
    give_key(screen)
    wait_until(lambda: len(requests(screen)) == 2)
    assert requests(screen)[1] == {"type": "login", "provider": "mistral", "key": KEY}
    answer(screen)
    told = "API key for mistral stored in the keychain of the test. /logout mistral removes it."
    screen.wait_for_transcript(told)
    screen.command("Agent logout mistral")
    assert requests(screen)[2] == {"type": "logout", "provider": "mistral"}


def test_providers_are_completed(screen):
    for command in ("Agent login", "Agent logout", "Agent login"):
        found = screen.lua("return vim.fn.getcompletion(..., 'cmdline')", f"{command} dee")
        assert found == ["deepseek", "deepseek-anthropic"]
    every = screen.lua("return vim.fn.getcompletion('Agent login ', 'cmdline')")
    assert set(every) == set(presets())


@pytest.mark.parametrize(
    "before, model, login, wanted",
    prove_rest(
        [
            ("auto", "demo", "", ["claude-x"]),
            ("auto", "demo", " mistral", ["mistral:"]),
            ("demo", "demo", " mistral", []),  # it was chosen
            ("auto", "claude-opus-5-5", " mistral", []),
        ]
    ),
)
def test_a_login_replaces_the_demo_model_that_answers_without_a_key(
    screen, before, model, login, wanted
):
    screen.lua("require('sanderling.config').options.provider = ...", before)
    screen.lua("require('sanderling.config').options.model = 'claude-x'")
    screen.send({"type": "model_changed", "model": model})
    screen.feed(f":Agent login{login}<CR>")
    wait_until(lambda: requests(screen))
    give_key(screen)
    wait_until(lambda: len(requests(screen)) == 2)
    answer(screen)
    screen.wait_for_transcript("stored in the keychain of the test")
    assert [action["model"] for action in screen.actions("set_model")] == wanted


def test_the_key_is_not_shown_while_it_is_typed(screen):
    screen.feed("i/login<C-s>")
    wait_until(lambda: requests(screen))
    answer(screen, backend="the keychain of the test")
    wait_until(lambda: is_asking(screen))
    screen.feed(KEY)
    wait_until(lambda: "*" * len(KEY) in bottom_row(screen))
    assert KEY not in bottom_row(screen)
    screen.feed("<C-c>")
    screen.wait_for_transcript("nothing has changed")
    assert len(requests(screen)) == 1


@pytest.mark.parametrize("keys", prove_rest(["<CR>", "  <CR>", "<Esc>", "<C-c>"]))
def test_without_a_key_nothing_changes(screen, keys):
    screen.feed(":Agent login<CR>")
    wait_until(lambda: requests(screen))
    answer(screen, backend="x")
    wait_until(lambda: is_asking(screen))
    screen.feed(keys)
    screen.wait_for_transcript("No key entered; nothing has changed.")
    assert len(requests(screen)) == 1


def test_where_there_is_no_keychain_the_sentence_of_the_host_is_shown_whole(screen):
    sentence = "There is no keychain that works here. " + "Put the key into ANTHROPIC_API_KEY. " * 5
    screen.feed("i/login<C-s>")
    wait_until(lambda: requests(screen))
    answer(screen, error=sentence)
    wait_until(lambda: sentence.strip() in screen.transcript_text())
    assert not screen.is_blocked()


def test_a_key_that_the_keychain_does_not_take_is_told(screen):
    screen.feed("i/login<C-s>")
    wait_until(lambda: requests(screen))
    give_key(screen)
    wait_until(lambda: len(requests(screen)) == 2)
    answer(screen, error="The keychain is locked.")
    screen.wait_for_transcript("The keychain is locked.")
    assert "stored in" not in screen.transcript_text()


@pytest.mark.parametrize(
    "login", prove_rest(["i/login {}<C-s>", ":Agent login {}<CR>", ":Agent login {}<CR>"])
)
@pytest.mark.parametrize("key", prove_rest([KEY, "sk-abc", "AbCdEfGhIjKlMnOpQrStUvWxYz", "a b"]))
def test_a_key_on_the_line_is_refused_and_kept_nowhere(screen, login, key):
    screen.feed(login.format(key))
    screen.wait_for_message("Do not type the key on this line")
    assert requests(screen) == []
    assert screen.prompt_lines() == [""]
    screen.feed("<Esc>:let g:next_command = 1<CR>")  # it is what `@:` holds from now on
    wait_until(lambda: screen.lua("return vim.g.next_command"))
    assert key not in traces(screen)
    assert not screen.is_blocked()


def test_a_key_in_a_prompt_that_is_never_sent_is_not_kept_either(screen):
    screen.feed(f"i/login {KEY}<Esc>")
    wait_until(lambda: screen.prompt_lines() == [f"/login {KEY}"])
    screen.lua("require('sanderling').close()")
    assert KEY not in traces(screen)


def test_a_macro_does_not_record_the_key(screen):
    screen.feed("<C-w>hqx:Agent login<CR>")
    wait_until(lambda: requests(screen))
    answer(screen, backend="x")
    screen.wait_for_transcript("A macro is being recorded")
    assert not is_asking(screen)


def test_a_question_that_comes_while_something_else_is_typed_does_not_take_its_keys(screen):
    screen.feed("i/login<C-s>")
    wait_until(lambda: requests(screen))
    screen.feed("By the way")
    wait_until(lambda: screen.prompt_lines() == ["By the way"])
    answer(screen, backend="the keychain of the test")
    screen.wait_for_transcript("Run :Agent login to enter it")
    assert not is_asking(screen)


def test_logout_removes_it(screen):
    screen.feed("i/logout<C-s>")
    wait_until(lambda: requests(screen) == [{"type": "logout"}])
    answer(screen, was_kept=True)
    screen.wait_for_transcript("API key removed from the keychain.")
    screen.command("Agent logout openai")
    answer(screen, was_kept=False)
    screen.wait_for_transcript("No API key for openai is stored")
    screen.command("Agent logout")
    answer(screen, error="There is none.")
    assert "There is none." in screen.transcript_text()


# --- with a host and a keychain ----------------------------------------------------------------------------------------


@pytest.fixture
def keychain(tmp_path):
    """The environment in which a Secret Service runs that is unlocked."""
    if not (shutil.which("dbus-run-session") and shutil.which("gnome-keyring-daemon")):
        pytest.skip("needs dbus-run-session and gnome-keyring-daemon")
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "keychain_home").mkdir()
    env = {
        key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")
    }
    env |= {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path / "keychain_home")}
    unlock = "printf pw | gnome-keyring-daemon --unlock --components=secrets --daemonize"
    script = f"{unlock} >/dev/null 2>&1; echo $DBUS_SESSION_BUS_ADDRESS; cat"
    with subprocess.Popen(
        ["dbus-run-session", "--", "sh", "-c", script],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        address = session.stdout.readline().strip()
        yield {
            "DBUS_SESSION_BUS_ADDRESS": address,
            "XDG_RUNTIME_DIR": env["XDG_RUNTIME_DIR"],
            "NO_PROXY": "*",
        }
        session.stdin.close()


def test_a_key_from_login_is_sent_until_logout_and_lies_in_no_file(start_nvim, keychain, tmp_path):
    with LoopbackServer() as server:
        server.answer(Reply(text("Hello."), done()))
        child = start_nvim(keychain | {"ANTHROPIC_BASE_URL": server.url})
        child.open_chat()
        child.feed("i/login<C-s>")
        wait_until(lambda: is_asking(child))
        child.feed(f"{KEY}<CR>")
        child.wait_for_transcript("API key stored in")
        child.wait_for_transcript("answers from now on, not the demo model.")
        child.command("stopinsert")
        child.submit_and_wait("Hi")
        assert "Hello." in child.transcript_text()
        assert [request.headers["x-api-key"] for request in server.prompts] == [KEY]
        child.feed("i/logout<C-s>")
        child.wait_for_transcript("API key removed")
        child.command("stopinsert | AgentNew")
        child.submit_and_wait("ping")
        assert child.transcript()[-1] == "pong"  # the demo model's
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
