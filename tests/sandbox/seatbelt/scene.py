"""A project with everything that is protected, as the guard finds it, and the profile of its commands."""

import subprocess
from pathlib import Path

from sanderling.sandbox.guard import protection, repositories, settings
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.kernel.layout import Protection
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.seatbelt.profile import compile_profile
from tests.sandboxes import policy_below

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
FILES = (
    ".envrc .nvim.lua .exrc .nvimrc .lazy.lua .mcp.json .vscode/tasks.json .idea/workspace.xml .env .env.local service/.env.production"
    " sub/.exrc main.py"
)


class Scene:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.git("init", "-q")
        for name in FILES.split():
            path = self.project / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("x\n")
        lib = base / "lib"
        lib.mkdir()
        self.git("init", "-q", cwd=lib)
        self.git("commit", "-q", "--allow-empty", "-m", "x", cwd=lib)
        vendor = self.project / "vendor/lib"
        self.git("clone", "-q", str(lib), str(vendor))
        self.git("submodule", "add", "-q", str(lib), "lib")
        self.git("commit", "-qm", "x")
        self.git("worktree", "add", "-q", str(self.home / "linked"))

    def git(self, *arguments: str, cwd: Path | None = None) -> None:
        command = ["git", *IDENTITY, *arguments]
        subprocess.run(command, cwd=cwd or self.project, check=True, capture_output=True)

    def policy(self, project: str = "home/project", **changes: object) -> SandboxPolicy:
        tmp_dir = str(self.base / "state/tmp/1-0")
        return policy_below(self.base, project, tmp_dir=tmp_dir, **changes)

    def protection(self, policy: SandboxPolicy) -> Protection:
        """Return what the guard finds in the project."""
        survey = repositories.survey(policy.project, TrustedGit())
        found = protection.protection(survey, is_worktree=policy.is_worktree)
        masked = settings.env_files_to_hide(survey)
        absent = tuple(found.names_never_made())
        return Protection(found.write, found.read, found.pin, found.read_only, masked, absent)

    def profile(self, policy: SandboxPolicy, proxy_port: int = 0) -> str:
        return compile_profile(policy, self.protection(policy), proxy_port=proxy_port)
