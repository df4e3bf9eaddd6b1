"""The project on disk: facts, instructions, its own commands, and which of its files the user trusts."""
