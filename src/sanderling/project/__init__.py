"""The project as it stands on disk: facts, instructions, commands of its own, and what of it the person trusts."""
