--- Operators: they take a motion and a count, and `.` repeats them on as much text from the cursor.
local M = {}

local api = vim.api
local message = require('sanderling.ui.message')

---@alias sanderling.ui.operator.Run fun(type: 'line'|'char'|'block')

---@type sanderling.ui.operator.Run? what `.` repeats
local chosen
---@type [integer, integer]? the cursor to restore, while the operator runs only to be known to `.`
local arming

--- The 'operatorfunc', which Neovim calls.
---@param type 'line'|'char'|'block'
function M.run(type)
  local cursor = arming
  arming = nil
  if cursor then
    pcall(api.nvim_win_set_cursor, 0, cursor)
  elseif chosen then
    chosen(type)
  end
end

---@param run sanderling.ui.operator.Run
local function choose(run)
  chosen = run
  vim.go.operatorfunc = "v:lua.require'sanderling.ui.operator'.run"
end

--- Start an operator on the selection, or on the motion that follows.
---@param run sanderling.ui.operator.Run
function M.start(run)
  choose(run)
  arming = nil
  local count = vim.v.count > 0 and tostring(vim.v.count) or ''
  api.nvim_feedkeys(count .. 'g@', 'ni', false) -- ahead of typed keys
end

--- Return a function for a key that runs `fn` and can be repeated with `.`.
---@param fn fun()
---@return fun(): string keys
function M.repeatable(fn)
  return function()
    choose(function()
      local ok, err = pcall(fn)
      if not ok then
        message.tell_error('', err)
      end
    end)
    arming = nil
    return 'g@l'
  end
end

--- Make `.` call `run` on as many lines as `first` to `last`.
---@param first integer line
---@param last integer
---@param run sanderling.ui.operator.Run
function M.arm(first, last, run)
  if api.nvim_get_mode().mode ~= 'n' then
    return
  end
  choose(run)
  arming = api.nvim_win_get_cursor(0)
  api.nvim_win_set_cursor(0, { first, 0 })
  api.nvim_feedkeys(('g@%d_'):format(last - first + 1), 'ni', false)
end

return M
