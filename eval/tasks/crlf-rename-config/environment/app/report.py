from app import config as get_cfg_module
from app.config import get_cfg as _get


def title():
    return '# ' + _get(get_cfg_module.CFG_PATH)['name']