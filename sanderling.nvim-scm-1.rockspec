rockspec_format = '3.0'
package = 'sanderling.nvim'
version = 'scm-1'

source = {
  url = 'git+https://github.com/sanderling-nvim/sanderling.nvim',
}

description = {
  summary = 'The AI coding agent that lives in Neovim and works in a kernel sandbox',
  homepage = 'https://github.com/sanderling-nvim/sanderling.nvim',
  license = 'MIT',
  labels = { 'neovim', 'ai', 'agent' },
}

dependencies = { 'lua >= 5.1' }

build = {
  type = 'builtin',
  copy_directories = { 'doc', 'plugin', 'rplugin', 'scripts', 'src' },
}
