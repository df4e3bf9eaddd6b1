"""Settings are checked by name, type and value; what is wrong is named."""

import pytest

from sanderling.config import (
    DEFAULT_MODEL,
    Settings,
    load_settings,
    make_private,
    settings_report,
)
from sanderling.errors import ConfigError


def test_only_the_state_directory_must_be_set(tmp_path):
    settings = load_settings({"state_dir": str(tmp_path)})
    assert settings == Settings(state_dir=str(tmp_path))
    assert settings.model == DEFAULT_MODEL
    assert settings.session_dir == tmp_path / "sessions"


def test_whole_number_is_good_enough_for_seconds():
    assert load_settings({"state_dir": "/s", "idle_timeout_s": 60}).idle_timeout_s == 60.0


@pytest.mark.parametrize(
    "options, words",
    [
        ({"modle": "x"}, ["'modle'", "did you mean 'model'?"]),
        ({"Model": "x"}, ["'Model'", "did you mean 'model'?"]),
        ({"zzzzzz": 1}, ["'zzzzzz'"]),
        ({"model": 5}, ["str", "int", "$.model"]),
        ({"model": ""}, ["$.model", "length >= 1"]),
        ({"max_tokens": -1}, ["$.max_tokens", ">= 0"]),
        ({"max_tokens": "many"}, ["$.max_tokens", "int"]),
        ({"max_tokens": True}, ["$.max_tokens", "int"]),
        ({"thinking": "yes"}, ["$.thinking", "bool"]),
        ({"idle_timeout_s": 0}, ["$.idle_timeout_s", "> 0"]),
        ({"provider": 5}, ["$.provider", "str", "int"]),
        ({"provider": "scripted"}, ["'script'"]),
        ({"state_dir": None}, ["$.state_dir"]),
    ],
)
def test_wrong_setting_is_named(options, words):
    with pytest.raises(ConfigError) as caught:
        load_settings({"state_dir": "/s"} | options)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_missing_state_directory_is_named():
    with pytest.raises(ConfigError, match="state_dir"):
        load_settings({})


def test_hint_is_left_out_when_nothing_is_near():
    with pytest.raises(ConfigError) as caught:
        load_settings({"zzzzzz": 1})
    assert "did you mean" not in str(caught.value)


def test_nobody_else_sees_which_projects_there_are(tmp_path):
    state = tmp_path / "state" / "sanderling"
    make_private(Settings(state_dir=str(state)))
    assert [path.stat().st_mode & 0o777 for path in (state, state / "sandbox")] == [0o700] * 2
    for path in (state, state / "sandbox"):
        path.chmod(0o755)  # as an earlier version made them
    make_private(Settings(state_dir=str(state)))
    assert [path.stat().st_mode & 0o777 for path in (state, state / "sandbox")] == [0o700] * 2


def test_the_report_names_options_as_they_are_given():
    settings = load_settings({"state_dir": "/s", "sandbox_min_level": "full"})
    report = settings_report(settings, "claude-x")
    assert '* sandbox.min_level: "full"' in report
    assert '* model: "claude-x"' in report
    assert "sandbox_" not in report
