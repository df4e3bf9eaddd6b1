"""Data that travels between the parts: messages of the model, events, actions, requests. Knows no part but `errors` and `text`."""
