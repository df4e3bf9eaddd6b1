"""The protocol: messages, events, actions, requests and remedies. Imports only `errors` and `text`."""
