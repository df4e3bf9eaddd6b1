"""
The engine `ray`: jobs run on the nodes of a Ray cluster.

```
library.py   loads Ray, which is an optional package
engine.py    the driver's side: submits a job, receives its directory, and its result
node.py      the part on a node: a remote function, which starts a worker as the local engine does
settings.py  the settings and addresses that agents on nodes get
gateway.py   the actor that calls models: it has the API keys
gate.py      its rate limit, for all requests together
inputs.py    projects, tasks and scripts in the object store
archives.py  directories as bytes
```

**A job is a retriable task.** Ray runs it again if its node or its process dies, so it may run twice, but the driver receives one return value
and writes one line. A failure of the agent is a result like any other, which Ray does not retry.

**Keys stay with the driver and the gateway.** Ray keeps the arguments of an actor's constructor in the cluster's control store, and large
arguments in the object store. So the gateway is made without arguments, on the driver's node, and gets keys in a method call, whose small
arguments go from process to process. Agents send a token instead of a key, which only the gateway of this run accepts.

**Files reach a node once.** The driver archives each project once. A node fetches and unpacks an archive for the first task that needs it.
"""
