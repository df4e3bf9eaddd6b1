"""A line for the shell: read as the commands in it, and as what each program does beyond its words."""
