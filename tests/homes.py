"""A person's home with a project, as the program finds it that runs there."""

import os
from pathlib import Path


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.state = folder / "state" / "nvim" / "sanderling"
        self.config = folder / "config" / "sanderling" / "config.toml"
        (self.project / ".git").mkdir(parents=True, exist_ok=True)
        self.config.parent.mkdir(parents=True, exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "NVIM", "XDG_"))
        }
        places = {
            "HOME": folder,
            "XDG_STATE_HOME": folder / "state",
            "XDG_CONFIG_HOME": folder / "config",
        }
        self.environment = inherited | {name: str(path) for name, path in places.items()}
