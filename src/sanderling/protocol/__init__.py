"""The protocol: messages of the model, events, actions, requests, and remedies in the words of a face. Knows only `errors`."""
