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

---@class (exact) sanderling.ui.operator.Started
---@field count string
---@field cursor [integer, integer] before the motion
---@field motion string as typed; empty: not typed
---@field is_visual boolean

---@type sanderling.ui.operator.Started? the last operator that was started
local started
local ns = api.nvim_create_namespace('sanderling_operator')

--- Record the keys of the motion that follows, until operator-pending mode ends.
---@param last sanderling.ui.operator.Started
local function record_motion(last)
  vim.on_key(function(_, typed)
    last.motion = last.motion .. (typed or '')
  end, ns)
  api.nvim_create_autocmd('ModeChanged', {
    group = api.nvim_create_augroup('sanderling_operator', {}), -- replaces one that is left over
    pattern = 'no*:*',
    once = true,
    desc = 'Agent: the motion of an operator is complete',
    callback = function()
      vim.on_key(nil, ns)
    end,
  })
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
  local is_visual = api.nvim_get_mode().mode:find('^[vVsS\22\19]') ~= nil
  started =
    { count = count, cursor = api.nvim_win_get_cursor(0), motion = '', is_visual = is_visual }
  if not is_visual then
    record_motion(started)
  end
  api.nvim_feedkeys(count .. 'g@', 'ni', false) -- ahead of typed keys
end

--- Stop recording the motion. The operator is about to let the user type.
---@return fun(type: 'line'|'char'|'block') again makes `.` run the operator on its motion, as if nothing had been typed since
function M.pause()
  vim.on_key(nil, ns)
  local last, run = started, chosen
  local from, to = api.nvim_buf_get_mark(0, '['), api.nvim_buf_get_mark(0, ']')
  return function(type)
    local lines = api.nvim_buf_line_count(0)
    if
      not last
      or not run
      or api.nvim_get_mode().mode ~= 'n'
      or math.max(to[1], last.cursor[1]) > lines
    then
      return
    end
    choose(run)
    arming = api.nvim_win_get_cursor(0)
    if last.is_visual then
      api.nvim_feedkeys('gvg@', 'ni', false)
    elseif last.motion ~= '' then
      api.nvim_win_set_cursor(0, last.cursor)
      api.nvim_feedkeys(last.motion, 'mi', false)
      api.nvim_feedkeys(last.count .. 'g@', 'ni', false)
    else
      local visual = { line = 'V', char = 'v', block = '\22' }
      api.nvim_buf_set_mark(0, '[', from[1], from[2], {})
      api.nvim_buf_set_mark(0, ']', to[1], to[2], {})
      api.nvim_feedkeys('`[' .. visual[type] .. '`]g@', 'ni', false)
    end
  end
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
