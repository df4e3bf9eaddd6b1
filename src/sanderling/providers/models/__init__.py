"""
Models: prices and context windows that are known without calling an API; a file for each provider.

Taken on 2026-11-23 from the lists of LiteLLM 1.109.1, genai-prices 0.2.3 and models.dev (2026-07-02), all of them MIT-licensed, where
they agree, and from the providers' own pages. Values that could not be verified are left out: they are unknown, not zero.
"""
