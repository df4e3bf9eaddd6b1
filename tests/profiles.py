"""Profiles of the SDK, on disk: what may stand in the place of a key."""

import json
from pathlib import Path


def write_profile(directory: Path, token: str) -> dict[str, str]:
    """Write a profile of the SDK's: the variable by which it is found."""
    configs, kept = directory / "anthropic" / "configs", directory / "anthropic" / "credentials"
    configs.mkdir(parents=True, exist_ok=True)
    kept.mkdir(exist_ok=True)
    told = {"authentication": {"type": "user_oauth"}, "workspace_id": "w1"}
    (configs / "default.json").write_text(json.dumps(told))
    (configs / "default.json").chmod(0o600)
    (kept / "default.json").write_text(json.dumps({"access_token": token, "expires_at": 4e9}))
    (kept / "default.json").chmod(0o600)
    return {"ANTHROPIC_CONFIG_DIR": str(directory / "anthropic")}
