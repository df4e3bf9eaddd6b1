"""Write index.txt: the files of a directory, with their numbers of lines."""

import os
import sys
from pathlib import Path


def main():
    directory = Path(sys.argv[1])
    lines = []
    for name in sorted(os.listdir(directory)):
        text = (directory / name).read_text()
        lines.append(f"{name}\t{len(text.splitlines())}")
    Path("index.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
