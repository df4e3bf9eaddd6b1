"""The order in which concurrent calls are shown, where some of them start child sessions."""

from sanderling.protocol.events import ToolEnded, ToolOutput, ToolStarted
from sanderling.protocol.in_line import InLine

DETAIL = "the report"


def shown(aside, *events):
    """What has been emitted after each of the events: `+`, `.` or `-` and the call's id."""
    emitted = []
    line = InLine(emitted.append, aside=aside)
    for sign, call_id in events:
        match sign:
            case "+":
                line.show(ToolStarted(call_id, "tool", ""))
            case ".":
                line.show(ToolOutput(call_id, "text"))
            case _:
                line.show(ToolEnded(call_id, detail=DETAIL))
    signs = {ToolStarted: "+", ToolOutput: ".", ToolEnded: "-"}
    assert all(each.detail == DETAIL for each in emitted if isinstance(each, ToolEnded))
    return " ".join(signs[type(each)] + each.id for each in emitted)


def test_calls_are_shown_one_after_the_other():
    assert shown(set(), "+a", "+b", ".b", ".a", "-b", "-a") == "+a .a -a +b .b -b"


def test_calls_that_start_children_are_all_shown_at_once_and_end_in_any_order():
    assert shown({"a", "b", "c"}, "+a", "+b", "+c", "-b", "-c", "-a") == "+a +b +c -b -c -a"


def test_a_call_after_one_that_starts_a_child_does_not_wait_for_it():
    assert shown({"a"}, "+a", "+b", ".b", "-b", "-a") == "+a +b .b -b -a"


def test_a_call_that_starts_a_child_is_shown_when_the_output_before_it_is_complete():
    assert shown({"b", "c"}, "+a", "+b", ".a", "+c", "-b", "-a", "-c") == "+a .a -a +b -b +c -c"
    assert shown({"b"}, "+a", "+b", "-a", "-b") == "+a -a +b -b"
