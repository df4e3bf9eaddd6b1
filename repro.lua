-- A Neovim with nothing but this checkout: `nvim --clean -u repro.lua`. Add below what your report needs.
local root = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
for _, name in ipairs({ 'STATE', 'DATA', 'CACHE', 'CONFIG' }) do
  vim.env['XDG_' .. name .. '_HOME'] = vim.fs.joinpath(root, '.repro', name:lower())
end
vim.opt.runtimepath:prepend(root)

-- `make install` builds the environment in .venv. Without a key, the demo model answers.
require('sanderling').setup({})
