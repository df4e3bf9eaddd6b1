"""The summary of a run as Harbor's `JobResult`, for the list of jobs in its viewer."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sanderling.batch.results import Result, RunSettings
from sanderling.batch.trial import EXCEPTIONS
from sanderling.json_lines import encoded
from sanderling.paths import replacing


def write_job_result(
    out: Path, results: Sequence[Result], total: int, settings: RunSettings, began: datetime
) -> None:
    """Write `result.json` with counts and sums of `results`, of `total` trials."""
    rewards = [result.reward for result in results if result.reward is not None]
    errors = sum(result.state in EXCEPTIONS for result in results)
    evaluation: dict[str, Any] = {
        "n_trials": len(rewards),
        "n_errors": errors,
        "metrics": [{"mean": sum(rewards) / len(rewards)}] if rewards else [],
    }
    names = ("sanderling", settings.model.rpartition(":")[2], "adhoc")
    output = sum(result.usage.get("output_tokens", 0) for result in results)
    job = {
        "id": str(uuid5(NAMESPACE_URL, str(out))),
        "started_at": began.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "n_total_trials": max(total, len(results)),
        "stats": {
            "n_completed_trials": len(results),
            "n_errored_trials": errors,
            "n_pending_trials": max(total - len(results), 0),
            "evals": {"__".join(filter(None, names)): evaluation},
            "n_input_tokens": sum(result.tokens for result in results) - output,
            "n_output_tokens": output,
            "cost_usd": sum(result.cost or 0.0 for result in results),
        },
    }
    with replacing(out / "result.json", is_durable=False) as file:
        file.write(encoded(job) + b"\n")
