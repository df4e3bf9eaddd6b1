--- Files that an autocommand reads in place of Neovim, or passes to a program.
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

--- Does `event` have autocommands for one of `names`? Autocommands of BufReadCmd and BufWriteCmd replace reading and writing.
---@param event string|string[]
---@param names string[]
---@param buf? integer include autocommands of this buffer
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

-- Patterns of autocommands that pass text to a program: Neovim's plugin for packed files, a filter, a shell command.
local GIVING = { 'gzip#read', "[%%%]%$%d.']!", '^%s*!', '|%s*!', 'system%(', 'systemlist%(' }

--- Does it pass the text to a program? Autocommands written in Lua cannot be inspected.
---@param autocmd vim.api.keyset.get_autocmds.ret
---@return boolean
local function gives_to_program(autocmd)
  return vim.iter(GIVING):any(function(pattern)
    return (autocmd.command or ''):find(pattern) ~= nil
  end)
end

--- Is a file of one of `names` read by a plugin, or through a program that unpacks or decrypts it?
---@param names string[]
---@param buf? integer include autocommands of this buffer
---@return boolean
function M.is_read_otherwise(names, buf)
  return M.is_handled('BufReadCmd', names, buf)
    or M.is_handled({ 'BufReadPre', 'BufReadPost' }, names, buf, gives_to_program)
end

--- Return the names that Neovim matches with patterns of autocommands, for any working directory.
---@param path string absolute
---@return string[]
local function names_of(path)
  local names = { path }
  for first in path:gmatch('/()') do
    names[#names + 1] = path:sub(first)
  end
  return names
end

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

--- Run `fn`, which may load a file, so that only Neovim itself reads it.
---@param fn fun()
function M.reading_plainly(fn)
  M.without({ 'BufReadCmd' }, fn)
end

--- Is `real` below /proc or /sys? Such files report no size and may be endless.
---@param real string
---@return boolean
function M.is_of_kernel(real)
  return real:find('^/proc/') ~= nil or real:find('^/sys/') ~= nil
end

return M
