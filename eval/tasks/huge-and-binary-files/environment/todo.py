"""List the lines with a mark."""

from pathlib import Path


def main():
    mark = "TO" + "DO"
    for path in sorted(Path(".").rglob("*")):
        if not path.is_file() or ".git" in path.parts:
            continue
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            if mark in line:
                print(f"{path}:{number}: {line}")


if __name__ == "__main__":
    main()
