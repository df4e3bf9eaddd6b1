"""A container as the sandbox: where it may be said, and what still protects then."""

import json
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.providers.endpoint import keys_of_providers
from sanderling.sandbox.confinement import SessionSandbox, policy_for
from sanderling.sandbox.outer import VARIABLE, container, is_outer
from tests.acp.conftest import home, start
from tests.conftest import wait_until
from tests.unit.test_print_mode import Shell

__all__ = ["home", "start"]  # fixtures
HERE = f"pid:[{4026531836}]"  # that of a host


def machine(tmp_path: Path, pid: str = HERE, cgroup: str = "0::/\n", root: str = "ext4") -> Path:
    """A directory with what /proc says of a machine."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to(pid)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    mounts = (
        "21 1 0:5 / /proc rw - proc proc rw\n"
        f"27 1 254:0 / / rw,relatime - {root} /dev/vda rw\n"
        "28 27 0:9 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw\n"
    )
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    return tmp_path / "proc"


OUTER = {VARIABLE: "outer"}


def test_a_host_is_no_container(tmp_path):
    proc = machine(tmp_path)
    assert not container(tmp_path, proc)
    with pytest.raises(ConfigError, match=r"there seems to be none.*say 'outer-unchecked'"):
        is_outer(OUTER, tmp_path, proc)
    assert is_outer({VARIABLE: "outer-unchecked"}, tmp_path, proc)


@pytest.mark.parametrize(
    "marker",
    [
        *(".dockerenv", "run/.containerenv", "run/systemd/container"),
        *("run/host/container-manager", ".singularity.d/actions"),
        "var/run/secrets/kubernetes.io/serviceaccount/token",
    ],
)
def test_what_an_engine_makes_shows_its_container(tmp_path, marker):
    proc = machine(tmp_path)
    (tmp_path / marker).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / marker).touch()
    assert is_outer(OUTER, tmp_path, proc)


@pytest.mark.parametrize(
    "cgroup, is_one",
    [
        ("12:pids:/docker/3f2a\n", True),
        ("1:name=systemd:/kubepods/burstable/pod1/3f\n", True),
        ("0::/lxc/c1\n", True),
        ("0::/lxc.payload.c1\n", True),
        ("0::/system.slice/docker-3f2a.scope\n", True),
        ("0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-3f2a.scope\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-3f2a.scope\n", True),
        ("0::/machine.slice/machine-qemu.scope\n", False),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", False),
        ("0::/system.slice/docker.service\n", False),  # the engine itself, on the host
        ("0::/dockers\n", False),
    ],
)
def test_a_cgroup_with_the_name_of_an_engine_shows_its_container(tmp_path, cgroup, is_one):
    assert bool(container(tmp_path, machine(tmp_path, cgroup=cgroup))) == is_one


@pytest.mark.parametrize(
    "pid, root, is_one",
    [
        ("pid:[4026532577]", "overlay", True),
        ("pid:[4026532577]", "ext4", False),  # unshare -p
        (HERE, "overlay", False),  # a live system
    ],
)
def test_a_root_that_is_an_overlay_counts_in_a_pid_namespace(tmp_path, pid, root, is_one):
    assert bool(container(tmp_path, machine(tmp_path, pid=pid, root=root))) == is_one


def test_a_machine_without_proc_is_no_container(tmp_path):
    assert not container(tmp_path, tmp_path / "none")


@pytest.mark.parametrize("said", ["", "full", "landlock", "none", "off"])
def test_a_level_that_a_sandbox_has_left_in_the_variable_says_nothing(said):
    assert not is_outer({VARIABLE: said})


def test_another_word_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="not 'outter'; did you mean 'outer'"):
        is_outer({VARIABLE: "outter"})


@pytest.mark.parametrize("level", ["full", "full-bwrap", "namespaces"])
def test_a_setting_that_demands_a_stronger_sandbox_is_kept(monkeypatch, tmp_path, level):
    monkeypatch.setenv(VARIABLE, "outer-unchecked")
    settings = Settings(state_dir=str(tmp_path), sandbox_min_level=level)
    with pytest.raises(ConfigError, match=f"sandbox.min_level is '{level}'"):
        policy_for(settings, str(tmp_path))


@pytest.fixture
def session(monkeypatch, tmp_path) -> SessionSandbox:
    monkeypatch.setenv(VARIABLE, "outer-unchecked")
    project = tmp_path / "project"
    project.mkdir()
    policy = policy_for(Settings(state_dir=str(tmp_path / "state")), str(project))
    policy = policy._replace(keys=keys_of_providers({"own": {"api_key": "$OWN_SECRET"}}))
    return SessionSandbox(policy, lambda _: None, lambda: None)


async def output_of(session: SessionSandbox, command: str) -> str:
    process = await session.environment.spawn(["sh", "-c", command])
    assert process.stdout
    text = b""
    with suppress(anyio.EndOfStream):
        while True:
            text += await process.stdout.receive()
    await process.wait()
    process.close()
    return text.decode()


async def test_commands_do_what_the_container_lets_them_without_the_keys(
    session, monkeypatch, tmp_path
):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OWN_SECRET", "OF_THE_TASK"):
        monkeypatch.setenv(name, "value")
    assert not session.environment.is_confined
    text = await output_of(session, f"echo x > {tmp_path}/outside; env")
    assert (tmp_path / "outside").read_text() == "x\n"
    assert "OF_THE_TASK=value" in text
    assert f"{VARIABLE}=outer-unchecked" in text
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OWN_SECRET"):
        assert f"{name}=" not in text


def test_it_is_shown_and_can_be_left_and_entered(session):
    assert session.facts[:2] == ("outer", "on")
    assert len(session.facts.missing) == 3
    session.switch(is_on=False)
    assert session.facts.level == "off"
    session.switch(is_on=True)
    assert session.facts.level == "outer"


async def test_its_network_is_the_containers(session):
    from sanderling.errors import SandboxError

    await session.set_network("on")
    for mode in ("off", "proxy"):
        with pytest.raises(SandboxError, match="its network is not Sanderling's"):
            await session.set_network(mode)


def test_bounds_are_not_those_of_plan_mode(session):
    assert session.is_bounded(session.environment, "auto")
    assert session.is_bounded(session.environment, "ask")
    assert not session.is_bounded(session.environment, "plan")
    session.switch(is_on=False)
    assert not session.is_bounded(session.environment, "auto")
    assert session.is_bounded(session.confined, "plan")


# --- through the program -----------------------------------------------------------------------------------------------

TOUCH = {"tool_use": {"name": "bash", "input": {"command": "touch ../outside; echo $0 done"}}}
DONE = [{"text": "Done."}]


@pytest.fixture
def shell(tmp_path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    "mode, has_run, status", [("auto", True, 0), ("ask", False, 3), ("plan", False, 3)]
)
def test_modes_ask_as_they_do_elsewhere(shell, mode, has_run, status):
    arguments = ("--sandbox", "outer-unchecked", "--mode", mode)
    played = shell.play([TOUCH], DONE, args=arguments)
    assert played.returncode == status, played.stderr
    assert (shell.project.parent / "outside").exists() == has_run


def test_rules_forbid_as_they_do_elsewhere(shell):
    shell.config.write_text('[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "touch"\n')
    played = shell.play([TOUCH], DONE, args=("--sandbox", "outer-unchecked", "--mode", "auto"))
    assert played.returncode == 3
    assert not (shell.project.parent / "outside").exists()


def test_commands_do_not_see_the_variable_with_the_secret_of_a_credential(shell):
    shell.environment["WORK_SECRET"] = "sanderling-0123456789abcdef"
    shell.config.write_text(
        '[sandbox.credentials.work]\nhosts = ["git.example"]\nsource = "env"\nvariable = "WORK_SECRET"\n'
    )
    look = {"tool_use": {"name": "bash", "input": {"command": "env | sort > seen"}}}
    played = shell.play([look], DONE, args=("--sandbox", "outer-unchecked", "--mode", "auto"))
    assert played.returncode == 0, played.stderr
    seen = (shell.project / "seen").read_text()
    assert "PATH=" in seen
    assert "0123456789abcdef" not in seen


def test_the_model_learns_what_confines_its_commands(shell):
    played = shell.play(DONE, args=("--sandbox", "outer-unchecked"))
    assert played.returncode == 0
    notes = str(shell.sessions()[0].history[0])
    assert "the container around this session" in notes


def test_a_run_is_refused_by_another_word_before_the_prompt_is_sent(shell):
    shell.environment[VARIABLE] = "outter"
    played = shell.play([TOUCH], DONE, args=("--mode", "auto"))
    assert (played.returncode, played.stdout) == (2, "")
    assert "not 'outter'; did you mean 'outer'?" in played.stderr
    assert not shell.sessions()


def test_a_network_that_cannot_be_restricted_is_refused(shell):
    played = shell.play(DONE, args=("--sandbox", "outer-unchecked", "--net", "off"))
    assert played.returncode == 2
    assert "its network is not Sanderling's: leave out --net" in played.stderr


def test_a_project_cannot_make_a_container_of_itself(shell):
    (shell.project / ".sanderling.toml").write_text('[sandbox]\nouter = true\nlevel = "outer"\n')
    shell.run("trust", "--yes")
    played = shell.play([TOUCH], DONE, args=("--mode", "auto"))
    assert not (shell.project.parent / "outside").exists(), played.stderr


@pytest.mark.parametrize("said", ["outer-unchecked", "full", "outter"])
def test_the_status_is_that_of_the_container(shell, said):
    shell.environment[VARIABLE] = said
    shown = shell.run("sandbox", "status")
    if said == "outter":
        assert (shown.returncode, shown.stdout) == (125, "")
        return
    is_one = said != "full"
    assert ("level: outer\n- Commands can do" in shown.stdout) == is_one
    status = json.loads(shell.run("sandbox", "status", "--json").stdout)
    assert (status["level"] == "outer") == is_one
    assert (status["network"] == "on") == is_one
    texts = [each["text"] for each in status["findings"]]
    assert (texts[0] == "level outer: the container is the sandbox") == is_one
    checked = shell.run("check")
    assert ("level outer: the container is the sandbox" in checked.stdout) == is_one


def test_an_editor_sees_it(start):
    agent = start("--model", "demo", "--sandbox", "outer-unchecked")
    agent.initialize()
    agent.new()
    wait_until(lambda: agent.of("config_option_update"))
    options = agent.of("config_option_update")[-1]["configOptions"]
    network = next(each for each in options if each["id"] == "network")
    assert network["description"].startswith("Sandbox: the container around the agent. ")
    assert network["currentValue"] == "on"
