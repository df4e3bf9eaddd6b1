"""For Inspect's Python: run Inspect's checks of a sandbox, and print those that fail with their reasons."""

import inspect
import json
import sys
import traceback

import anyio
from inspect_ai.util._sandbox import self_check
from sanderling_inspect.environment import SanderlingSandboxConfig, SanderlingSandboxEnvironment


async def main(names: list[str]) -> None:
    config = SanderlingSandboxConfig()
    environments = await SanderlingSandboxEnvironment.sample_init("check", config, {})
    failed = {}
    try:
        for name in names or self_check.__all__:
            check = getattr(self_check, name)
            assert inspect.iscoroutinefunction(check)
            try:
                await check(environments["default"])
            except Exception:  # noqa: BLE001 - whatever a check raises
                failed[name] = traceback.format_exc()
    finally:
        await SanderlingSandboxEnvironment.sample_cleanup("check", config, environments, False)
    print(json.dumps({"count": len(names or self_check.__all__), "failed": failed}))


anyio.run(main, sys.argv[1:])
