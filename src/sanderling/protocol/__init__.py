"""The protocol: messages, events, actions, requests, and remedies in the words of a face. Knows only `errors` and `text`."""
