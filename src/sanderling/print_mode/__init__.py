"""
`sanderling -p PROMPT`: one turn without an editor and without a person.

A face as the editor is one: it sends actions and reads events, and its agent is the same. Standard output has the result and
nothing else; what else there is to say goes to standard error. Nobody is there to answer, so each question is denied at once, with
a reason for the model; the exit status tells.
"""
