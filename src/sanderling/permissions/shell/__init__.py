"""Shell lines: parsed into commands, with what each program does beyond its words."""
