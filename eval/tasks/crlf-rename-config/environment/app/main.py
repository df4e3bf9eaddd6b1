# The entry point: get_cfg first, then the report.
from app.config import CFG_PATH, get_cfg
from app.report import title


def main():
    settings = get_cfg(CFG_PATH)
    print(settings["name"])
    print(title())


if __name__ == "__main__":
    main()
