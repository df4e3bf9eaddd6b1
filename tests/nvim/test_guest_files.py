"""Files that another agent has us read and write: what is typed and not saved counts, and is never written over."""

from tests.conftest import prove, wait_until
from tests.nvim.test_guests import start_guest, typed

__all__ = ["start_guest"]


def call(method, **params):
    return {"call": {"method": f"fs/{method}_text_file", "params": params}}


@prove
def test_unsaved_text_is_read_and_merged_and_undone_in_one_step(start_guest, project):
    path = project / "a.txt"
    path.write_text("one\ntwo\nthree\nfour\nfive\n")
    script = {
        "prompts": {
            "read": [call("read", path="$CWD/a.txt", line=1, limit=2)],
            "write": [call("write", path="$CWD/a.txt", content="one\ntwo\nthree\nfour\nFIVE\n")],
        }
    }
    child = start_guest(script)
    child.command("AgentMode auto")
    buf = child.lua(f"local buf = vim.fn.bufadd('{path}') vim.fn.bufload(buf) return buf")
    child.lua(f"vim.api.nvim_buf_set_lines({buf}, 0, 1, false, {{ 'ONE' }})")
    typed(child, "read")
    wait_until(lambda: r"ONE\ntwo\n" in child.transcript_text().replace("\\\\", "\\"))
    typed(child, "write")
    wait_until(lambda: child.transcript_text().count("got:") == 2)
    lines = child.lua(f"return vim.api.nvim_buf_get_lines({buf}, 0, -1, false)")
    assert lines == ["ONE", "two", "three", "four", "FIVE"]
    assert path.read_text() == "one\ntwo\nthree\nfour\nfive\n"
    child.lua(f"vim.api.nvim_buf_call({buf}, function() vim.cmd('silent undo') end)")
    lines = child.lua(f"return vim.api.nvim_buf_get_lines({buf}, 0, -1, false)")
    assert lines == ["ONE", "two", "three", "four", "five"]
