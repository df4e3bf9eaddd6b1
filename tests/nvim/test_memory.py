"""A session that is closed leaves nothing behind in the host; the host in a process of its own, with a real Neovim."""

import subprocess
import sys
import textwrap

from tests.conftest import DEADLINE_S, prove

SCRIPT = """
version = 1
[[reply]]
repeat = true
[[reply.step]]
text = "Hello."
"""
TALK = textwrap.dedent("""
    import asyncio, gc, os, sys
    import pynvim
    from sanderling.editor.bridge import Bridge
    from sanderling.editor.host import EditorHost
    from sanderling.editor.live import EditorSession

    address, project, state, script = sys.argv[1:]
    nvim = pynvim.attach("socket", path=address)
    host = EditorHost(Bridge(nvim))
    gc.freeze()
    gc.disable()  # only what the host itself collects is

    def alive():
        return sum(isinstance(each, EditorSession) for each in gc.get_objects())

    async def happens(condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def talk():
        prompt = {"id": "p1", "text": "Good morning."}
        host.act("s1", {"type": "open_session", "project": project})
        host.act("s1", {"type": "submit_prompt", "prompt": prompt})
        await happens(lambda: os.path.exists(log) and "turn_ended" in open(log).read())
        print(alive(), flush=True)
        host.act("s1", {"type": "close_session"})
        await happens(lambda: not alive())
        print(alive(), flush=True)
        os._exit(0)

    log = f"{state}/sessions/s1.jsonl"
    options = {"state_dir": state, "options": {"provider": "scripted", "script": script}}
    nvim.loop.call_soon(host.configure, options)
    host.bridge.start(talk, lambda error: error and print(repr(error), flush=True))
    nvim.run_loop(lambda *_: None, lambda *_: None)
""")


@prove
def test_closed_session_is_freed_though_python_seldom_looks(child, tmp_path):
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT)
    address = child.lua("return vim.fn.serverstart()")
    argv = [sys.executable, "-c", TALK, address, child.project, tmp_path / "state", script]
    done = subprocess.run(argv, check=False, timeout=DEADLINE_S, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0"], done.stderr
