"""What the model replies, in the words of a script."""


def reply(*steps, **fields):
    return {"step": list(steps), **fields}


def say(text):
    return {"text": text}


def use(tool, **args):
    return {"tool_use": {"name": tool, "input": args}}


def edit(path, old, new):
    return use("edit", path=path, edits=[{"old": old, "new": new}])


def bash(command, **args):
    return use("bash", command=command, **args)


DONE = reply(say("Done."), repeat=True)
