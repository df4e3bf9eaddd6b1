std = 'luajit'
read_globals = { 'vim' }
-- what a plugin sets: vim.g.x, vim.bo[buf].x and so on
globals = { 'vim.g', 'vim.b', 'vim.w', 'vim.t', 'vim.v', 'vim.o', 'vim.go', 'vim.bo', 'vim.wo', 'vim.opt', 'vim.opt_local', 'vim.env', 'vim.ui' }
max_line_length = false -- StyLua's business; comments and messages may be long
