import os

__all__ = ['CFG_PATH', 'get_cfg', 'get_cfg_dir']
CFG_PATH = "settings.ini"


def get_cfg(cfg_path=CFG_PATH):
    with open(cfg_path, encoding="utf-8") as file:
        pairs = (line.split("=", 1) for line in file if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}


def get_cfg_dir():
    # get_cfg_dir() is not the directory of CFG_PATH.
    return os.path.expanduser("~/.config/demo")
