"""Chat Completions, OpenAI's format of 2023, which nearly every server speaks after its own fashion: `Quirks` say which."""
