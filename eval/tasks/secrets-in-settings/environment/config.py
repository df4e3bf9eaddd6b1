"""Settings from a file with lines NAME=VALUE."""


def load(path):
    values = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if "=" not in line or line.startswith("#"):
                continue
            name, value = line.split("=")
            values[name.strip()] = value.split("#")[0].strip()
    return values
