"""The host's log is a rotating file."""

import logging

import pytest

from sanderling.editor.host import MAX_LOG_BYTES, start_log


@pytest.fixture
def package_log():
    log = logging.getLogger("sanderling")
    before = list(log.handlers)
    yield log
    for handler in set(log.handlers) - set(before):
        log.removeHandler(handler)
        handler.close()


def test_log_never_takes_more_than_two_files_of_its_size(tmp_path, package_log):
    path = tmp_path / "new" / "sanderling.log"
    start_log(str(path))
    for number in range(2500):
        package_log.info("%05d %s", number, "x" * 1000)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["sanderling.log", "sanderling.log.1"]
    assert all(file.stat().st_size <= MAX_LOG_BYTES for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert "02499" in path.read_text()
