--- Operators: what takes a motion and a count, and is repeated by `.`, on as much text from the cursor on.
local M = {}

local api = vim.api

---@alias sanderling.ui.operator.Run fun(type: 'line'|'char'|'block')

---@type sanderling.ui.operator.Run? what `.` does once more
local chosen
---@type [integer, integer]? the cursor, while the operator only runs so that `.` knows it
local arming

--- 'operatorfunc'. (Not for callers outside: Neovim comes here.)
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

--- Begin an operator: a motion follows, or a selection is there.
---@param run sanderling.ui.operator.Run
function M.start(run)
  choose(run)
  arming = nil
  local count = vim.v.count > 0 and tostring(vim.v.count) or ''
  api.nvim_feedkeys(count .. 'g@', 'ni', false) -- before what is typed already
end

--- Let `.` do `run`, on as many lines as these, which no operator has named.
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
