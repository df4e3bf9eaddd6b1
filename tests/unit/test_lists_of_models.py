"""Lists of models, as servers tell them that nobody knows."""

import json

import pytest
from tests.conftest import little_work

from sanderling.providers.http.models import MAX_MODELS, decode_models
from sanderling.providers.ollama.reply import decode_tags

WRONG = ["", "a\x1b]0;x\x07", "a\u202eb", "a\nb", "x" * 201, "\u200b"]


@pytest.mark.parametrize("wrong", WRONG)
def test_name_that_nobody_can_see_or_write_is_left_out(wrong):
    assert list(decode_models(json.dumps({"data": [{"id": wrong}, {"id": "b"}]}).encode())) == ["b"]
    assert decode_tags(json.dumps({"models": [{"name": wrong}, {"name": "b"}]}).encode()) == ("b",)


def test_list_without_an_end_is_cut():
    listed = json.dumps([{"id": f"m{number}", "created": number} for number in range(100_000)])
    with little_work():
        assert len(decode_models(listed.encode())) == MAX_MODELS
