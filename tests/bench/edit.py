"""Lines that are rewritten in place: from the key to the first virtual line, and from the key that stops it."""

import time
from collections.abc import Iterator

from tests.bench.shared import Bench, Row, median_row

ROUNDS = 20


def edit(bench: Bench) -> Iterator[Row]:
    seen, stopped = [], []
    with bench.warm_nvim() as nvim:
        nvim.command("wincmd p | only | enew!")
        nvim.feed("ione<CR>two<CR>three<Esc>")
        for number in bench.times(ROUNDS + 1):
            answer_id, words = bench.server.words("stream", 3, 0)
            nvim.feed(f":2AgentEdit {words}")
            nvim.wait_for_text(words)
            began = time.monotonic()
            nvim.rpc.send("nvim_input", "<CR>")
            at = nvim.wait_for_mark(f"begin{answer_id:06}")
            if number:  # the first one loads what it needs
                seen.append(1000 * (at - began))
            nvim.wait_for_text("accepts")
            nvim.command("AgentReject")
        for _ in bench.times(ROUNDS):
            answer_id, words = bench.server.words("stream", 2000, 100)
            nvim.feed(f":2AgentEdit {words}<CR>")
            nvim.wait_for_mark(f"begin{answer_id:06}")
            nvim.follow(time.monotonic() + 0.2)
            began = time.monotonic()
            nvim.rpc.send("nvim_input", "<C-c>")
            stopped.append(1000 * (nvim.wait_for_text("Stopped.") - began))
            nvim.command("echo ''")
            nvim.wait(lambda: "Stopped." not in nvim.screen_seen.text(), "an empty line")
    yield median_row("AgentEdit: <CR> → the first virtual line", seen, "ms", 60)
    yield median_row("AgentEdit: <C-c> → stopped, on the screen", stopped, "ms", 50)
