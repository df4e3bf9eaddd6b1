"""Tasks for Inspect, with scripted models or without any."""

import anyio
from inspect_ai import Task, task, task_with
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox, store
from sanderling_inspect.agent import sanderling
from sanderling_inspect.environment import SanderlingSandboxConfig

REFUSED = "|| echo refused"


async def said(command: str) -> str:
    return (await sandbox().exec(["sh", "-c", command])).stdout


def looking(look, samples=1, sandbox="sanderling"):
    """A task whose solver calls `look` and keeps what it returns."""

    @solver
    def solve():
        async def run(state: TaskState, _: Generate) -> TaskState:
            for name, value in (await look(state)).items():
                store().set(name, value)
            return state

        return run

    files = {"given.txt": "given\n"}
    setup = "#!/bin/sh\necho set up >> given.txt"
    dataset = [Sample(id=i, input="", files=files, setup=setup) for i in range(1, samples + 1)]
    model = get_model("mockllm/model")
    return Task(dataset=dataset, solver=solve(), sandbox=sandbox, model=model)


@task
def confined(secret: str, port: int, outside: str):
    async def look(_: TaskState):
        async def raised(call) -> str:
            try:
                await call
            except OSError as error:
                return type(error).__name__
            return "nothing"

        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        return {
            "given": await said("cat given.txt"),
            "secret": await said(
                f"cat {secret} ~/secret /proc/*/root/{secret} 2>/dev/null; ls -A ~"
            ),
            "key": await said("echo ${OPENAI_API_KEY-no key}"),
            "written": await said(
                f"touch {outside}/x 2>/dev/null {REFUSED}; touch /usr/x 2>/dev/null {REFUSED}"
            ),
            "connected": await said(f'python3 -c "{connect}" 2>/dev/null {REFUSED}'),
            "read_file": await raised(sandbox().read_file(secret)),
            "write_file": await raised(sandbox().write_file("/usr/x", "x")),
        }

    return looking(look)


@task
def neighbours():
    number = 4
    here = {"count": 0}
    all_here = anyio.Event()

    async def meet() -> None:
        here["count"] += 1
        if here["count"] % number == 0:
            all_here.set()
        await all_here.wait()

    async def look(state: TaskState):
        own = f"own{state.sample_id}"
        await said(f"touch /app/{own} ~/{own} /tmp/{own}; (exec -a neighbour sleep 600) &")
        await sandbox().exec(["bash", "-c", "(exec -a neighbour sleep 600) >/dev/null 2>&1 &"])
        await meet()
        return {
            "own": own,
            "files": await said("for d in /app ~ /tmp; do ls $d | grep own; done"),
            "processes": await said("ps ax | grep -c '[n]eighbour'"),
        }

    return looking(look, samples=number)


@task
def background():
    async def look(_: TaskState):
        server = "cd /app && echo hello > page && python3 -m http.server 8000"
        await said(f"({server}) >/dev/null 2>&1 &")
        get = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/page').read().decode(), end='')"
        answered = ""
        with anyio.fail_after(60):
            while not answered:
                answered = await said(f'python3 -c "{get}" 2>/dev/null')
        mark = "kept_after_the_sample"
        # It has the streams of its command, which returns all the same.
        await said(f"sh -c 'sleep 600; : {mark}' & echo started")
        return {
            "answered": answered,
            "mark": mark,
            "returned": await said(f"ps ax | grep -c 'sleep 600; : [k]{mark[1:]}'"),
        }

    return looking(look)


@task
def project(path: str):
    async def look(_: TaskState):
        change = (
            "git config a.b c && touch .git/hooks/pre-commit && echo changed >> file && cat file"
        )
        return {"said": await said(change)}

    spec = SandboxEnvironmentSpec("sanderling", SanderlingSandboxConfig(project=path))
    return looking(look, samples=2, sandbox=spec)


@task
def endless(mark: str):
    async def look(_: TaskState):
        stop = "kill -STOP $(pgrep -f inside.py | head -1)"
        return {
            "said": await said(f"{stop}; setsid sh -c 'sleep 600; : {mark}' & sleep 600; : {mark}")
        }

    return looking(look, samples=2)


BOTH = "cat given.txt > copied.txt && echo hello > hello.txt"


def counted(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
    return output


def scripted(*commands: str):
    """A model that runs the commands, then says "Done."."""
    calls = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": each}) for each in commands
    ]
    done = ModelOutput.from_content("mockllm/model", "Done.")
    return get_model("mockllm/model", custom_outputs=[*map(counted, calls), counted(done)])


@scorer(metrics=[accuracy()])
def files():
    async def score(_: TaskState, __: Target) -> Score:
        found = await sandbox().exec(["cat", "copied.txt", "hello.txt"])
        return Score(
            value=found.stdout == "given\nhello\n", explanation=found.stdout + found.stderr
        )

    return score


def copying(model):
    return Task(
        dataset=[Sample(input="Copy the file.", files={"given.txt": "given\n"})],
        solver=sanderling(),
        scorer=files(),
        sandbox="sanderling",
        model=model,
    )


@task
def solved():
    return copying(scripted(BOTH))


@task
def missed():
    return copying(scripted("cat /app/given.txt > /app/copied.txt; cat /app/missing"))


@task
def broken():
    failed = ModelOutput.from_content("mockllm/model", "", error="The model is gone.")
    return copying(get_model("mockllm/model", custom_outputs=[counted(failed)] * 10))


SOLVE = (
    "test ! -e /tests/test.sh && echo hello > hello.txt; wc -l < ${LINES_IN:-/dev/null} > count.txt"
)


@task
def harbors(path: str):
    """Tasks in Harbor's format, as the package inspect_harbor reads them."""
    from inspect_harbor import harbor

    def answer(messages, *_):
        if messages[-1].role == "tool":
            return counted(ModelOutput.from_content("mockllm/model", "Done."))
        return counted(ModelOutput.for_tool_call("mockllm/model", "bash", {"command": SOLVE}))

    model = get_model("mockllm/model", custom_outputs=answer)
    found = harbor(path=path, sandbox_env_name="sanderling")
    return task_with(found, solver=sanderling(), model=model)
