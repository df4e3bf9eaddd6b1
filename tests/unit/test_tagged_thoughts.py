"""Thoughts in the text, and errors on lines of their own: wherever the server cuts what it sends, they are found."""

from itertools import groupby

import httpx2
import pytest

from sanderling.providers.chat.tags import TaggedThoughts
from sanderling.providers.http.provider import events_of

ANSWERS = {
    "<think>\nHm </b> </thin> x\n</think>\n\nYes </think> `<think>`": [
        ("thinking", "Hm </b> </thin> x\n"),
        ("text", "Yes </think> `<think>`"),
    ],
    " \n<think></think> Yes.": [("text", "Yes.")],
    "<think>Only this </thi": [("thinking", "Only this </thi")],
    "  <thin": [("text", "  <thin")],
    "Look: <think>x</think>": [("text", "Look: <think>x</think>")],
}


def parted(pieces, habit="tagged"):
    thoughts = TaggedThoughts(habit)
    parts = [part for piece in pieces for part in thoughts.feed(piece)]
    parts = [part for part in (*parts, *thoughts.end()) if part[1]]
    runs = groupby(parts, key=lambda part: part[0])
    return [(kind, "".join(words for _, words in run)) for kind, run in runs]


@pytest.mark.parametrize("answer", ANSWERS)
def test_thoughts_are_parted_from_the_answer_wherever_it_is_cut(answer):
    assert parted(answer) == ANSWERS[answer]
    for cut in range(len(answer)):
        assert parted([answer[:cut], answer[cut:]]) == ANSWERS[answer]


def test_a_habit_says_where_thoughts_stand():
    assert parted(["Hm.</think>Yes."], "begun") == [("thinking", "Hm."), ("text", "Yes.")]
    assert parted(["<think>Hm.</think>"], "none") == [("text", "<think>Hm.</think>")]


class Cut(httpx2.AsyncByteStream):
    def __init__(self, *pieces):
        self.pieces = pieces

    async def __aiter__(self):
        for piece in self.pieces:
            yield piece


async def test_lines_of_errors_are_events_wherever_they_are_cut():
    data = b'data: an error: none\n\nerror: {"code": 500}\n\nerrors: no field\n\ndata: x\n\nerror:y\n\n'
    expected = [
        ("message", "an error: none"),
        ("error", '{"code": 500}'),
        ("message", "x"),
        ("error", "y"),
    ]
    cuts = [(data,), tuple(data[n : n + 1] for n in range(len(data)))]
    cuts += [(data[:cut], data[cut:]) for cut in range(len(data))]
    for pieces in cuts:
        request = httpx2.Request("POST", "http://api.test")
        response = httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, stream=Cut(*pieces), request=request
        )
        assert [(each.event, each.data) async for each in events_of(response)] == expected
