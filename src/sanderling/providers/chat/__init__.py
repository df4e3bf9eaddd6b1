"""Chat Completions, OpenAI's format of 2023. Nearly every server speaks a variant of it, which `Quirks` describe."""
