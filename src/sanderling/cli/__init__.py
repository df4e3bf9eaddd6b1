"""The commands of `sanderling` that have grown beyond a function of `__main__`."""
