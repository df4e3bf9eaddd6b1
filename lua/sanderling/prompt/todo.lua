--- The model's to-do list: pinned below the text of the prompt, and shown whole in a float.
---
--- The pinned lines are virtual lines of the prompt's buffer. So they do not move with the transcript, hide nothing and
--- need no window of their own. A prompt that fills its window pushes them out.
local M = {}

local api = vim.api
local page = require('sanderling.access.page')
local icons = require('sanderling.ui.icons')
local words = require('sanderling.ui.words')

local MAX_LINES = 6
local ns = api.nvim_create_namespace('sanderling_todo')

---@class (exact) sanderling.prompt.todo.Todo
---@field buf? integer of the prompt
---@field private state fun(): sanderling.session.state.State of its session
---@field private mark? integer
local Todo = {}
Todo.__index = Todo

---@type table<string, string> highlight by status, which names the icon, too
local hls = { pending = 'AgentTodo', in_progress = 'AgentTodoActive', completed = 'AgentTodoDone' }

---@param state fun(): sanderling.session.state.State of its session
---@return sanderling.prompt.todo.Todo
function M.new(state)
  return setmetatable({ state = state }, Todo)
end

---@param item sanderling.TodoItem
---@return string text
---@return string hl
local function line_of(item)
  return ('%s %s'):format(icons[item.status], words.plain(item.content)), hls[item.status]
end

--- Return the index of the item in progress, else of the first pending one, else of the last.
---@param items sanderling.TodoItem[]
---@return integer
local function index_of_current(items)
  local first_open
  for i, item in ipairs(items) do
    if item.status == 'in_progress' then
      return i
    elseif item.status == 'pending' then
      first_open = first_open or i
    end
  end
  return first_open or #items
end

--- Return whether the list says something about the last turn. One that was completed goes with the turn; one that was
--- not shows where the turn stopped, and goes when the next prompt starts: it would stay below all later prompts.
---@param state sanderling.session.state.State
---@return boolean
local function is_current(state)
  local has_open = vim.iter(state.todo):any(function(item)
    return item.status ~= 'completed'
  end)
  return not state.is_todo_old and #state.todo > 0 and (has_open or state.is_in_turn)
end

--- Return the number of lines available below a line of text.
---@private
---@return integer
function Todo:room()
  local room = MAX_LINES
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    room = math.min(room, vim.fn.getwininfo(win)[1].height - 1)
  end
  return math.max(room, 2)
end

--- Return the items around the current one, as many as fit, and the number of further ones.
---@private
---@return [string, string][][]
function Todo:virtual_lines()
  local items = self.state().todo
  local count, room = #items, self:room()
  local shown = count > room and room - 1 or count
  local first = math.max(1, math.min(index_of_current(items) - 1, count - shown + 1))
  local lines = {}
  for i = first, first + shown - 1 do
    lines[#lines + 1] = { { line_of(items[i]) } }
  end
  if shown < count then
    local text = ('%s %d more: :Agent todo'):format(icons.more, count - shown)
    lines[#lines + 1] = { { text, 'AgentPlaceholder' } }
  end
  return lines
end

---@return integer
function Todo:wanted_rows()
  local state = self.state()
  return is_current(state) and math.min(#state.todo, MAX_LINES) or 0
end

--- Draw the list below the last line of the prompt, or remove that of an earlier turn.
function Todo:draw()
  if not self.buf then
    return
  end
  if not is_current(self.state()) then
    api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
    self.mark = nil
    return
  end
  self.mark = api.nvim_buf_set_extmark(self.buf, ns, api.nvim_buf_line_count(self.buf) - 1, 0, {
    id = self.mark,
    virt_lines = self:virtual_lines(),
  })
end

--- Keep the list below the text, which has changed.
function Todo:follow()
  if self.mark then
    self:draw()
  end
end

function Todo:show()
  local items = self.state().todo
  local lines, line_hls = {}, {}
  for i, item in ipairs(items) do
    lines[i], line_hls[i] = line_of(item)
  end
  local buf, win = page.view('Todo', lines, 'todo')
  for i, hl in ipairs(line_hls) do
    api.nvim_buf_set_extmark(buf, ns, i - 1, 0, { end_row = i, hl_group = hl, strict = false })
  end
  api.nvim_win_set_cursor(win, { index_of_current(items), 0 })
end

return M
