--- Reading that is not Neovim's own: files that an autocommand stands in for, or gives to a program.
local M = {}

local api = vim.api

---@type table<string, vim.regex|false> by pattern of an autocommand
local regexes = {}

---@param pattern string
---@return vim.regex|false
local function regex_of(pattern)
  if regexes[pattern] == nil then
    local ok, regex = pcall(function()
      return vim.regex(vim.fn.glob2regpat(pattern))
    end)
    regexes[pattern] = ok and regex
  end
  return regexes[pattern]
end

--- Are there autocommands of `event` for what is called by one of `names`? Those of BufReadCmd and BufWriteCmd stand in for
--- reading and writing it.
---@param event string|string[]
---@param names string[]
---@param buf? integer those of this buffer, too
---@param is_meant? fun(autocmd: vim.api.keyset.get_autocmds.ret): boolean
---@return boolean
function M.is_handled(event, names, buf, is_meant)
  for _, autocmd in ipairs(api.nvim_get_autocmds({ event = event })) do
    local is_of_buf = autocmd.buflocal and autocmd.buffer == buf
    local regex = not autocmd.buflocal and regex_of(autocmd.pattern)
    local is_of_name = regex
      and vim.iter(names):any(function(name)
        return regex:match_str(name) ~= nil
      end)
    if (is_of_buf or is_of_name) and (not is_meant or is_meant(autocmd)) then
      return true
    end
  end
  return false
end

-- Patterns of autocommands that give text to a program: Neovim's own plugin for packed files, a filter, a shell's command.
local GIVING = { 'gzip#read', "[%%%]%$%d.']!", '^%s*!', '|%s*!', 'system%(', 'systemlist%(' }

--- Does it give what was read to a program? One that is written in Lua cannot be looked into.
---@param autocmd vim.api.keyset.get_autocmds.ret
---@return boolean
local function gives_to_program(autocmd)
  return vim.iter(GIVING):any(function(pattern)
    return (autocmd.command or ''):find(pattern) ~= nil
  end)
end

--- Is what is called by one of `names` read in a way of its own: by a plugin, or through a program that unpacks or decrypts it?
---@param names string[]
---@param buf? integer autocommands of this buffer, too
---@return boolean
function M.is_read_otherwise(names, buf)
  return M.is_handled('BufReadCmd', names, buf)
    or M.is_handled({ 'BufReadPre', 'BufReadPost' }, names, buf, gives_to_program)
end

--- The names that Neovim compares with the patterns of autocommands, wherever its working directory is or will be.
---@param path string absolute
---@return string[]
local function names_of(path)
  local names = { path }
  for first in path:gmatch('/()') do
    names[#names + 1] = path:sub(first)
  end
  return names
end

--- Would a plugin read the file in its own way, where an editor shows what is in it?
---@param path string absolute
---@return boolean
function M.is_read_by_plugin(path)
  return M.is_read_otherwise(names_of(path))
end

--- Run `fn` without the autocommands of these events.
---@param events string[]
---@param fn fun()
function M.without(events, fn)
  local before = vim.go.eventignore
  local more = table.concat(events, ',')
  vim.go.eventignore = before == '' and more or before .. ',' .. more
  local ok, err = pcall(fn)
  vim.go.eventignore = before
  if not ok then
    error(err, 0)
  end
end

--- Run `fn`, which loads a file or may: nothing but Neovim itself reads it.
---@param fn fun()
function M.reading_plainly(fn)
  M.without({ 'BufReadCmd' }, fn)
end

--- Is `real` one of the kernel's own files? They say they are empty, and may have no end.
---@param real string
---@return boolean
function M.is_of_kernel(real)
  return real:find('^/proc/') ~= nil or real:find('^/sys/') ~= nil
end

return M
