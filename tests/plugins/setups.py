"""Plugins as their users set them up: their checkouts, and the Lua of an init.lua."""

SNACKS = """
require('snacks').setup({
  animate = { enabled = true }, bigfile = { enabled = true }, dashboard = { sections = { { section = 'header' } } },
  explorer = { enabled = true }, indent = { enabled = true }, input = { enabled = true },
  notifier = { enabled = true }, picker = { enabled = true }, quickfile = { enabled = true },
  scope = { enabled = true }, scroll = { enabled = true }, statuscolumn = { enabled = true },
  words = { enabled = true }, dim = { enabled = true },
})
"""

NOICE = """
require('noice').setup({
  lsp = { override = {
    ['vim.lsp.util.convert_input_to_markdown_lines'] = true,
    ['vim.lsp.util.stylize_markdown'] = true,
    ['cmp.entry.get_documentation'] = true,
  } },
  presets = { bottom_search = true, command_palette = true, long_message_to_split = true },
})
"""

MINI = """
for _, name in ipairs({ 'ai', 'animate', 'basics', 'bracketed', 'clue', 'completion', 'cursorword', 'files',
  'hipatterns', 'icons', 'indentscope', 'jump', 'map', 'move', 'notify', 'operators', 'pairs', 'pick', 'statusline',
  'surround', 'tabline', 'trailspace' }) do
  require('mini.' .. name).setup(name == 'clue' and {
    triggers = { { mode = 'n', keys = '<Leader>' }, { mode = 'n', keys = ']' }, { mode = 'n', keys = '[' } },
    clues = { require('mini.clue').gen_clues.g() },
  } or name == 'basics' and { mappings = { option_toggle_prefix = '' } } or {})
end
vim.ui.select = require('mini.pick').ui_select
"""

NVIM_CMP = """
local cmp = require('cmp')
cmp.setup({
  sources = { { name = 'nvim_lsp' } },
  mapping = cmp.mapping.preset.insert({ ['<CR>'] = cmp.mapping.confirm({ select = true }) }),
})
"""

BLINK = """
require('blink.cmp').setup({
  fuzzy = { implementation = 'lua' }, keymap = { preset = 'enter' }, sources = { default = { 'lsp' } },
  cmdline = { enabled = true, completion = { menu = { auto_show = true } } },
})
"""

EDGY = """
vim.o.laststatus, vim.o.splitkeep = 3, 'screen'
require('edgy').setup({
  right = {
    { ft = 'sanderling', title = 'Chat', size = { width = 0.4 } },
    { ft = 'sanderling_prompt', title = 'Prompt', size = { height = 6 } },
  },
  bottom = { { ft = 'qf', title = 'QuickFix' } },
})
"""

AUTO_SESSION = """
vim.o.sessionoptions = 'blank,buffers,curdir,folds,help,tabpages,winsize,winpos,terminal,localoptions'
require('auto-session').setup({ log_level = 'error' })
"""

WHICH_KEY = "require('which-key').setup({ delay = 0, notify = false })"

LUALINE = "require('lualine').setup({ options = { globalstatus = true, icons_enabled = false } })"

SETUPS: dict[str, tuple[list[str], str]] = {
    "none": ([], ""),
    "snacks": (["snacks.nvim"], SNACKS),
    "noice": (["noice.nvim", "nui.nvim"], NOICE),
    "noice and snacks": (["noice.nvim", "nui.nvim", "snacks.nvim"], SNACKS + NOICE),
    "telescope": (["telescope.nvim", "plenary.nvim"], "require('telescope').setup({})"),
    "fzf-lua": (
        ["fzf-lua"],
        "require('fzf-lua').setup({}) require('fzf-lua').register_ui_select()",
    ),
    "mini": (["mini.nvim"], MINI),
    "nvim-cmp": (["nvim-cmp", "cmp-nvim-lsp"], NVIM_CMP),
    "blink.cmp": (["blink.cmp"], BLINK),
    "render-markdown": (
        ["render-markdown.nvim"],
        "require('render-markdown').setup({ file_types = { 'markdown' } })",
    ),
    "edgy": (["edgy.nvim"], EDGY),
    "auto-session": (["auto-session"], AUTO_SESSION),
    "which-key": (["which-key.nvim"], WHICH_KEY),
    "lualine": (["lualine.nvim"], LUALINE),
    "nvim-autopairs": (["nvim-autopairs"], "require('nvim-autopairs').setup({})"),
}
