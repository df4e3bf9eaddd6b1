"""What a command inherits without asking: variables and open descriptors."""

import os

from .registry import Stopped, World, attack

VARIABLES = (  # every one of them is given to the sandbox's command line, with the token in it
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "VIMRUNTIME",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "NPM_TOKEN",
    "DATABASE_URL",
    "PGPASSWORD",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "TMUX",
    "STY",
    "DOCKER_HOST",
    "KUBECONFIG",
    "SUDO_USER",
    "SSH_CONNECTION",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "GIT_ASKPASS",
    "MY_OWN_VARIABLE",
    "PYTHONPATH_SECRET",
    "LC_SECRET_TOKEN",
    "CMAKE_TOKEN",
)

for _name in VARIABLES:

    @attack(f"variable-{_name}", kind="environment", evidence="loot")
    def variable(_world: World, name: str = _name) -> str:
        return os.environ[name]


@attack("variable-any", kind="environment", evidence="loot")
def variable_any(_world: World) -> str:
    return " ".join(f"{name}={value}" for name, value in os.environ.items() if "CANARY" in value)


@attack("descriptor-file", kind="environment", evidence="loot")
def descriptor_file(world: World) -> str:
    return os.pread(world.inherited_file, 4096, 0).decode()


@attack("descriptor-directory", kind="environment", evidence="loot")
def descriptor_directory(world: World) -> str:
    """openat() from a directory that was open before the walls went up."""
    fd = os.open(".ssh/id_ed25519", os.O_RDONLY, dir_fd=world.inherited_directory)
    return os.read(fd, 4096).decode()


@attack("descriptor-any", kind="environment", evidence="loot")
def descriptor_any(_world: World) -> str:
    for fd in range(3, 256):  # what goes to the streams may speak of canaries itself
        for way in (".ssh/id_ed25519", ""):
            try:
                opened = os.open(way, os.O_RDONLY, dir_fd=fd) if way else fd
                text = os.pread(opened, 4096, 0).decode(errors="replace")
            except OSError:
                continue
            if "CANARY" in text:
                return text
    raise Stopped("none holds anything")


@attack("descriptor-output-climb", kind="environment", evidence="loot")
def descriptor_output_climb(world: World) -> str:
    """Standard output may be a file; its directory is not to be reached through it."""
    for fd in (0, 1, 2):
        for way in ("..", "../.ssh/id_ed25519"):
            try:
                opened = os.open(way, os.O_RDONLY, dir_fd=fd)
                return os.read(opened, 4096).decode()
            except OSError:
                continue
    return descriptor_directory(world)
