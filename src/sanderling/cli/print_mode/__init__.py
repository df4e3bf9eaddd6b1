"""
`sanderling -p PROMPT`: one turn without an editor and without a user.

A frontend like the editor: it sends actions, reads events, and uses the same agent. Standard output has only the result; everything else
goes to standard error. Questions cannot be answered, so each is denied at once, with a reason for the model and an exit status of its
own.
"""
