--- Floats: opening and leaving them, and the footers that name their keys.
local M = {}

local api = vim.api
local keys = require('sanderling.ui.keys')

-- Above a floating chat, below the completion menu and messages. Information never covers a question; `above` is for floats that the
-- user opens from a question, and for those in which they write.
M.ZINDEX = { page = 59, question = 60, above = 70 }

--- Open a window on `buf`, a new buffer. It is deleted if that fails: windows can be locked.
---@param buf integer
---@param is_entered boolean
---@param win_config vim.api.keyset.win_config
---@return integer win
function M.open(buf, is_entered, win_config)
  local ok, win = pcall(api.nvim_open_win, buf, is_entered, win_config)
  if not ok then
    pcall(api.nvim_buf_delete, buf, { force = true })
    error(win, 0)
  end
  return win
end

--- Close the float and return to `from`: Neovim itself never returns into a float.
---@param win integer
---@param from integer
function M.leave(win, from)
  if api.nvim_win_is_valid(win) then
    api.nvim_win_close(win, true)
  end
  if api.nvim_win_is_valid(from) then
    api.nvim_set_current_win(from)
  end
end

--- Return the footer that says how to close a focused float.
---@return string
function M.closing()
  return (' %s '):format(keys.hint('close', ':q', 'closes'))
end

--- Return a footer that names keys, each with a word on what it does.
---@param named [string, string][] an option, and what its key does
---@return string
function M.naming(named)
  local parts = {}
  for _, each in ipairs(named) do
    local option, does = unpack(each)
    local key = keys.name(keys.chosen[option], '')
    parts[#parts + 1] = key ~= '' and ('%s %s'):format(key, does) or nil
  end
  return (' %s '):format(table.concat(parts, '  '))
end

return M
