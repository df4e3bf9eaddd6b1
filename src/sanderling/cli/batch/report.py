"""`sanderling batch report OUT`: numbers on standard output, or a report as a file."""

import sys
from pathlib import Path

from sanderling.batch.report import as_html, as_markdown
from sanderling.batch.results import read_results
from sanderling.errors import UsageError
from sanderling.text import visible


def report(out: Path, form: str) -> int:
    """
    Write the report in the directory of the results, or print it as Markdown if no form is named.

    Raises:
        UsageError: there are no results, or the file cannot be written.
    """
    results = read_results(out)
    if not form:
        sys.stdout.write(visible(as_markdown(results)))
        return 0
    path = out / f"report.{form}"
    try:
        path.write_text(as_html(results) if form == "html" else as_markdown(results), "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    sys.stdout.write(f"{path}\n")
    return 0
