"""As `sanderling sandbox exec`, where a tool server with something of its own is: `as_server.py [options] -- COMMAND`."""

import sys
from argparse import ArgumentParser

from sanderling.cli import sandbox as cli
from sanderling.sandbox.effective_policy import EffectivePolicy
from sanderling.sandbox.network.serving import HostNetwork
from sanderling.sandbox.policy import NO_GRANT
from sanderling.sandbox.sandbox import Sandbox

NAME = "it"


class AsServer(Sandbox):
    async def spawn(self, argv, *, policy=None, **options):
        assert policy is None
        effective_policy = EffectivePolicy(self.policy, print, lambda: None)
        policy = effective_policy.of_server(self, NAME, NO_GRANT)
        if policy.network != "on":
            self._servers[NAME] = HostNetwork(policy.network, (), self._tasks, self._on_event)
        return await super().spawn(argv, policy=policy, is_server=True, **options)


def main() -> int:
    parser = ArgumentParser()
    cli.add(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["sandbox", "exec", *sys.argv[1:]])
    cli.Sandbox = AsServer
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
