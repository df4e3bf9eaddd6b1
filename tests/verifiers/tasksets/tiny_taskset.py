"""A taskset for verifiers: a rollout is solved if it writes hello.txt."""

import verifiers.v1 as vf


class TinyTask(vf.Task[vf.TaskData]):
    @vf.reward(weight=1.0)
    async def solved(self, runtime: vf.Runtime) -> float:
        found = await runtime.run(["cat", "hello.txt"], {})
        return float(found.stdout == "hello\n")


class TinyTaskset(vf.Taskset[TinyTask, vf.TasksetConfig]):
    def load(self) -> list[TinyTask]:
        return [TinyTask(vf.TaskData(prompt="Write hello.txt."), self.config.task)]


__all__ = ["TinyTaskset"]
