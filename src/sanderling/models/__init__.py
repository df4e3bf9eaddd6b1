"""
Models: their prices and windows, as they are known before anybody is asked; a file for each provider.

Taken on 2026-11-23 from what the lists of LiteLLM 1.109.1, genai-prices 0.2.3 and models.dev (2026-07-02), all of them MIT-licensed,
agree on, and from the providers' own pages. What could not be made sure of is left out: it is not known, never nothing.
"""
