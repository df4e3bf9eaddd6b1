"""Rewriting: the text that a person wants in the place of some lines, asked of the model beside all conversations."""
