"""What the tools of a session work on: its project, its sandbox, the editor if there is one, and what they keep between uses."""

import os
from dataclasses import dataclass

from sanderling.sandbox.session import SessionSandbox
from sanderling.tools.editor import Editor


@dataclass
class Workspace:
    project: str
    sandbox: SessionSandbox
    editor: Editor | None = None

    def path(self, name: str) -> str:
        """`name` as the model wrote it (absolute, below `~`, or relative to the project) as an absolute path."""
        return os.path.normpath(os.path.join(self.project, os.path.expanduser(name)))

    def shown(self, path: str) -> str:
        """`path` as a person and the model read it best: relative to the project where it lies inside."""
        inside = f"{self.project}/"
        return path.removeprefix(inside) if path.startswith(inside) else path
