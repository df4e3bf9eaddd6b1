"""The agent `sanderling` of Inspect, with scripted models that Inspect answers for."""

from tests.inspect.conftest import Inspect


def accuracy(log: dict) -> float:
    (score,) = log["results"]["scores"]
    return score["metrics"]["accuracy"]["value"]


def test_the_agent_solves_a_sample_and_inspect_counts_and_logs_its_model_calls(inspect: Inspect):
    log = inspect.eval("solved")
    assert (log["status"], accuracy(log)) == ("success", 1.0)
    (sample,) = log["samples"]
    assert sample["model_usage"]["mockllm/model"]["total_tokens"] == 220
    assert [event["event"] for event in sample["events"]].count("model") == 2
    system, user, call, result, done = sample["messages"]
    assert "You are Sanderling" in system["content"]
    assert user["content"][-1]["text"] == "Copy the file."
    assert call["tool_calls"][0]["function"] == "bash"
    assert (result["role"], "exit status 0" in result["content"]) == ("tool", True)
    assert "Done." in str(done["content"])
    assert inspect.left() == []


def test_a_sample_that_the_agent_does_not_solve_gets_no_score(inspect: Inspect):
    log = inspect.eval("missed")
    assert (log["status"], accuracy(log)) == ("success", 0.0)
    assert "No such file" in str(log["samples"][0]["messages"])
