"""`python -m tests.bench [name…] [--json FILE] [--quick]`: measure, print one table. Exits with 1 when a row is OVER its target."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.bench.acp import acp
from tests.bench.acp_client import acp_client
from tests.bench.blame import blame
from tests.bench.cache import cache
from tests.bench.changes import changes, undo
from tests.bench.children import children
from tests.bench.edit import edit
from tests.bench.first_request import first_request
from tests.bench.hostile import hostile
from tests.bench.latency import cancel, cold, first_text, interrupt, long, warm
from tests.bench.mentions import mentions
from tests.bench.print_mode import print_mode
from tests.bench.ray_engine import ray_engine
from tests.bench.remote import remote
from tests.bench.resume import resume, shown
from tests.bench.review import review
from tests.bench.rounds import rounds
from tests.bench.sandbox import sandbox
from tests.bench.serve import serve
from tests.bench.servers import servers
from tests.bench.shared import Bench, Row, Server
from tests.bench.start import chat, memory, start
from tests.bench.stream import flood, grown, stream
from tests.bench.tools import code, tools
from tests.bench.units import cost_units

GROUPS = {
    group.__name__: group
    for group in (
        *(start, chat, warm, first_text, cold, stream, grown, long, flood, hostile, cancel),
        *(interrupt, memory, sandbox, servers, tools, rounds, changes, code, review, edit),
        *(mentions, undo, print_mode, acp, acp_client, remote, serve, first_request, cache, resume),
        *(shown, cost_units, children, ray_engine, blame),
    )
}
WIDTHS = (62, 50, 18, 5)


def print_line(*cells: str) -> None:
    print(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip(),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(GROUPS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: shows that it works")
    args = parser.parse_args()
    if unknown := set(args.names) - set(GROUPS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(GROUPS)}")

    rows: list[Row] = []
    server = Server()
    load = os.getloadavg()[0]
    print_line("what", "measured", "target", "")
    try:
        for name in args.names or GROUPS:
            for row in GROUPS[name](Bench(server, is_quick=args.quick)):
                rows.append(row)
                print_line(*row.cells())
    finally:
        server.close()
    print(f"{os.cpu_count()} cores; load before {load:.1f}, after {os.getloadavg()[0]:.1f}")
    if args.json:
        args.json.write_text(
            json.dumps([asdict(row) | {"verdict": row.verdict} for row in rows], indent=1)
        )
    return 1 if any(row.verdict == "OVER" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
