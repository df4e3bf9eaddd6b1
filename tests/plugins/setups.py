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

LAZY = """
vim.g.mapleader = ' '
vim.opt.runtimepath:prepend(PLUGINS['lazy.nvim'])
local mine = vim.g.sanderling
OURS = { dir = SANDERLING, name = 'sanderling.nvim', init = function()
  vim.g.sanderling = vim.tbl_extend('force', mine or {}, OPTIONS)
end }
require('lazy').setup({
  spec = { SPECS },
  install = { missing = false }, change_detection = { enabled = false }, rocks = { enabled = false },
  pkg = { enabled = false }, checker = { enabled = false },
})
"""

LAZYVIM = LAZY.replace(
    "SPECS",
    """
  { 'LazyVim/LazyVim', dir = PLUGINS.LazyVim, import = 'lazyvim.plugins', opts = {
    colorscheme = 'habamax', news = { lazyvim = false } } },
  EXTRAS
  THERE,
  MISSING,
  { 'saghen/blink.cmp', optional = true, opts = { fuzzy = { implementation = 'lua' } } },
  OURS,
""",
).replace(
    "require('lazy')",
    """
local function each(names, make)
  return vim.tbl_map(function(name) return make(name) end, vim.split(vim.trim(names), '%s+'))
end
local THERE = each([[
  MunifTanjim/nui.nvim folke/lazy.nvim folke/noice.nvim folke/snacks.nvim folke/which-key.nvim nvim-lualine/lualine.nvim
  nvim-mini/mini.ai nvim-mini/mini.icons nvim-mini/mini.pairs nvim-mini/mini.animate nvim-mini/mini.indentscope
  nvim-mini/mini.surround saghen/blink.cmp hrsh7th/nvim-cmp hrsh7th/cmp-nvim-lsp folke/edgy.nvim ibhagwan/fzf-lua
  nvim-telescope/telescope.nvim nvim-lua/plenary.nvim
]], function(name)
  local dir = PLUGINS[name:match('/(.*)')] or name:find('^nvim%-mini/') and PLUGINS['mini.nvim']
  return { name, dir = dir, optional = true, enabled = dir ~= nil and dir ~= false }
end)
local MISSING = each([[
  MagicDuck/grug-far.nvim akinsho/bufferline.nvim catppuccin/nvim folke/flash.nvim folke/lazydev.nvim folke/persistence.nvim
  folke/todo-comments.nvim folke/tokyonight.nvim folke/trouble.nvim folke/ts-comments.nvim lewis6991/gitsigns.nvim
  mason-org/mason-lspconfig.nvim mason-org/mason.nvim mfussenegger/nvim-lint neovim/nvim-lspconfig
  nvim-treesitter/nvim-treesitter nvim-treesitter/nvim-treesitter-textobjects rafamadriz/friendly-snippets
  saghen/blink.compat stevearc/conform.nvim windwp/nvim-ts-autotag hrsh7th/cmp-buffer hrsh7th/cmp-path
  nvim-telescope/telescope-fzf-native.nvim
]], function(name) return { name, enabled = false } end)
require('lazy')""",
)
LAZYVIM_PLUGINS = [
    *("LazyVim", "blink.cmp?", "lualine.nvim?", "mini.nvim", "noice.nvim", "nui.nvim"),
    *("snacks.nvim", "which-key.nvim"),
]

LAZYVIM_EXTRAS = """
{ import = 'lazyvim.plugins.extras.coding.mini-surround' },
{ import = 'lazyvim.plugins.extras.ui.edgy' },
{ import = 'lazyvim.plugins.extras.ui.mini-animate' },
{ import = 'lazyvim.plugins.extras.ui.mini-indentscope' },
"""

MANAGED: dict[str, tuple[list[str], str]] = {
    "LazyVim": (["lazy.nvim", *LAZYVIM_PLUGINS], LAZYVIM.replace("EXTRAS", "")),
    "LazyVim with extras": (
        ["lazy.nvim", *LAZYVIM_PLUGINS, "edgy.nvim"],
        LAZYVIM.replace("EXTRAS", LAZYVIM_EXTRAS),
    ),
}
"""Those that a plugin manager loads, and us."""
