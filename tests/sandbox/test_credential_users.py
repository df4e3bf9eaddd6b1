"""Who gets the placeholder of a credential: commands of a session that a user watches or a script asked for, and nobody else."""

import json

import pytest

from sanderling.config import Credential
from sanderling.sandbox.policy import Grant
from tests.batch.batches import Batches, bash, git
from tests.children import delegate, said, tree, use
from tests.sandbox.test_credentials import (
    SECRET,
    VARIABLE,
    certificate,  # noqa: F401 - a fixture
    server,  # noqa: F401 - a fixture
)
from tests.sandbox.test_files import session_of
from tests.sandbox.test_servers import server_in

pytestmark = pytest.mark.guard

CREDENTIAL = {
    "hosts": ["git.example"],
    "source": "env",
    "variable": VARIABLE,
    "placeholders": ["GH_TOKEN"],
    "paths": ["/*"],
}
SHOW = "echo got=${GH_TOKEN%-*}=$TEST_GIT_TOKEN="
WITH, WITHOUT = "got=sanderling==", "got==="


@pytest.fixture
def home(tmp_path, monkeypatch) -> Batches:
    monkeypatch.setenv(VARIABLE, SECRET)
    home = Batches(tmp_path)
    home.config.write_text(
        'network = "proxy"\n[sandbox.credentials.git]\n'
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in CREDENTIAL.items())
    )
    return home


def test_command_of_print_mode_gets_a_placeholder(home):
    model = home.write_script([bash(SHOW)], [{"text": "Done."}])
    done = home.run("-p", "Go.", f"--model={model}", "--mode=auto", "--output-format=stream-json")
    assert WITH in done.stdout, done
    assert SECRET not in done.stdout + done.stderr


def test_task_of_a_batch_gets_none(home):
    home.directory("p", f="old\n")
    home.write_tasks({"id": "t", "project": "p", "prompt": "Go."})
    done, results = home.play(
        [bash(f"{SHOW} > f")], [{"text": "Done."}], args=("--net", "proxy", "--mode", "auto")
    )
    assert results["t"]["state"] == "completed", done
    assert f"+{WITHOUT}\n" in home.patch("t").read_text()


async def test_child_gets_one_of_its_own(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv(VARIABLE, SECRET)
    child = [[use("bash", command=SHOW)], [said("Looked.")]]
    settings = {"network": "proxy", "sandbox": {"credentials": {"git": CREDENTIAL}}}
    async with tree(tmp_path, [delegate("Look.")], children={"Look.": child}, **settings) as it:
        await it.run()
        (child_id,) = it.child_ids()
        assert WITH in str(it.read(child_id)[1])


async def test_child_in_a_worktree_pushes_to_the_projects_remotes(
    tmp_path,
    monkeypatch,
    server,  # noqa: F811
    plain_environment,  # noqa: ARG001
):
    monkeypatch.setenv(VARIABLE, SECRET)
    project = tmp_path / "project"
    project.mkdir()
    url = f"https://me@{server.host}/git/it.git"
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "First")):
        git(project, *words)
    git(project, "remote", "add", "origin", url)
    sandbox = {
        "hosts": [server.host, f"127.0.0.1:{server.server_port}"],
        "credentials": {"git": CREDENTIAL | {"hosts": [server.host], "paths": ["remotes"]}},
    }
    push = "no_proxy= NO_PROXY= git push -q origin HEAD:refs/heads/topic; echo pushed $?"
    children = {"Push.": [[use("bash", command=push)], [said("Pushed.")]]}
    call = delegate("Push.", isolation="worktree")
    async with tree(tmp_path, [call], children=children, network="proxy", sandbox=sandbox) as it:
        await it.run()
        (child_id,) = it.child_ids()
        assert it.read(child_id)[0].worktree
        assert "pushed 0" in str(it.read(child_id)[1])
    pushed = git(tmp_path / "repositories" / "it.git", "rev-parse", "topic")
    assert pushed == git(project, "rev-parse", "HEAD")


@pytest.mark.parametrize("grant", ["none", "its own"])
async def test_server_gets_none_even_if_it_shares_the_commands_network(place, monkeypatch, grant):
    monkeypatch.setenv(VARIABLE, SECRET)
    credential = Credential(
        hosts=("git.example",), source="env", variable=VARIABLE, placeholders=("GH_TOKEN",)
    )
    credentials = (("git", credential),)
    async with session_of(place, network="proxy", credentials=credentials) as session:
        of_server = Grant() if grant == "none" else Grant(hosts=("git.example",))
        async with server_in(session, of_server) as server:
            assert (await server.said(SHOW)).strip() == WITHOUT
            assert "insteadOf" not in await server.said("env")
