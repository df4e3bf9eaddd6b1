--- Child sessions in the transcript of the session that started them: a line below the tool call, which shows what the child
--- does and has used. It is virtual, so that it is updated without moving a row.
local M = {}

local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local icons = require('sanderling.ui.icons')
local states = require('sanderling.session.state')
local words = require('sanderling.ui.words')

local ns = require('sanderling.transcript.writer').NS

local INDENT = '  '
local LEAST_CELLS = 16 -- of the activity; a shorter one is useless

---@type table<sanderling.ChildState, string>
local STATES = {
  queued = 'queued',
  running = 'working',
  waiting = 'waiting for you',
  done = 'done',
  partial = 'stopped, with a partial result',
  budget = 'budget used up',
  timeout = 'out of time',
  denied = 'denied',
  error = 'failed',
}

---@type table<sanderling.ChildState, true>
local HAS_ACTIVITY = { running = true, waiting = true }

---@type table<sanderling.ChildState, string>
local hls =
  { waiting = 'AgentWarning', running = 'AgentBusy', queued = 'AgentBusy', error = 'AgentError' }

--- Return what a child has used; each step of `brevity` leaves out more, the least important first.
---@param child sanderling.ChildChanged
---@param brevity integer from 0 to 4
---@return string '' or with a separator at its beginning
local function counts_of(child, brevity)
  local calls, tokens, cost = child.calls or 0, child.tokens or 0, child.cost_usd or 0
  local budget, text = child.budget_tokens or 0, ''
  local function add(max_brevity, is_something, count)
    if brevity <= max_brevity and is_something then
      text = text .. icons.separator .. count
    end
  end
  local of = brevity == 0 and budget > 0 and ' of ' .. words.short(budget) or ''
  add(1, calls > 0, words.counted(calls, 'call'))
  add(2, tokens > 0, words.short(tokens) .. of .. ' tokens')
  add(3, cost > 0, words.dollars(cost))
  return text
end

--- Return what a child has used, in a few words.
---@param child sanderling.ChildChanged
---@return string? nil if it has used nothing
function M.counts(child)
  local counts = counts_of(child, 1)
  return counts ~= '' and counts:sub(#icons.separator + 1) or nil
end

--- Return what a child does, or how it ended.
---@param child sanderling.ChildChanged
---@return string
function M.doing(child)
  local activity = words.first_line(words.plain(child.activity or ''))
  local state = STATES[child.state]
  if activity == '' or not HAS_ACTIVITY[child.state] then
    return state
  end
  return child.state == 'running' and activity or ('%s: %s'):format(state, activity)
end

--- Return a child's name, activity and usage in at most `width` cells.
---@param child sanderling.ChildChanged
---@param width integer
---@return [string, string][] chunks
function M.chunks(child, width)
  local doing, name = M.doing(child), words.fitting(words.plain(child.name), width)
  local least = math.min(LEAST_CELLS, api.nvim_strwidth(doing))
  local counts, room
  for brevity = 0, 4 do
    counts = counts_of(child, brevity)
    room = width - api.nvim_strwidth(name .. icons.separator .. counts)
    if room >= least then
      break
    end
  end
  return {
    { name, 'AgentTool' },
    { icons.separator, 'AgentStatus' },
    { words.fitting(doing, math.max(room, 0)), hls[child.state] or 'AgentStatus' },
    { counts, 'AgentStatus' },
  }
end

---@param self sanderling.transcript.Transcript
---@param tool_id string
---@return sanderling.transcript.blocks.tool.Block?
local function block_of(self, tool_id)
  for i = #self.tool_blocks, 1, -1 do
    if self.tool_blocks[i].id == tool_id then
      return self.tool_blocks[i]
    end
  end
end

---@class (exact) sanderling.transcript.blocks.child.Line
---@field event sanderling.ChildChanged
---@field mark? integer nil until the tool call is shown

---@param self sanderling.transcript.Transcript
---@param line sanderling.transcript.blocks.child.Line
---@return integer? row
local function row_of(self, line)
  return line.mark and api.nvim_buf_get_extmark_by_id(self.buf, ns, line.mark, {})[1]
end

---@param self sanderling.transcript.Transcript
---@param line sanderling.transcript.blocks.child.Line
---@param row integer
local function draw_line(self, line, row)
  local chunks = { { INDENT, 'AgentStatus' } }
  vim.list_extend(chunks, M.chunks(line.event, self.footer:width() - #INDENT))
  local opts = { id = line.mark, virt_lines = { chunks } }
  line.mark = api.nvim_buf_set_extmark(self.buf, ns, row, 0, opts)
end

--- Show the child of a tool call that is shown now, if there is one already.
---@param self sanderling.transcript.Transcript
---@param tool_id string
function M.begin(self, tool_id)
  local line, block = self.child_lines[tool_id], block_of(self, tool_id)
  if line and block then
    block.child, self.tools[tool_id].child = line.event.id, line.event.id
    draw_line(self, line, row_of(self, line) or block.first)
  end
end

---@type table<string, sanderling.transcript.blocks.Draw>
local draw = {}

function draw.child_changed(self, event)
  local tool_id = event.tool_id
  if self.tools[tool_id] or states.is_active[event.state] then
    self.child_lines[tool_id] = self.child_lines[tool_id] or {}
    self.child_lines[tool_id].event = event
  end
  if self.tools[tool_id] then
    return M.begin(self, tool_id)
  end
  local block = block_of(self, tool_id)
  if block then -- of the history, or it has ended
    block.child = event.id
  end
end

--- Fit the lines of running children to the width of the window, which has changed.
---@param self sanderling.transcript.Transcript
function M.fit(self)
  for _, line in pairs(self.child_lines) do
    local row = row_of(self, line)
    if row then
      draw_line(self, line, row)
    end
  end
end

--- Remove the line of a child whose call has ended: the call's header has the outcome.
---@param self sanderling.transcript.Transcript
---@param tool_id string
function M.settle(self, tool_id)
  local line = self.child_lines[tool_id]
  if line and line.mark then
    api.nvim_buf_del_extmark(self.buf, ns, line.mark)
  end
  self.child_lines[tool_id] = nil
end

blocks.register({
  draw = draw,
  new = function()
    return { child_lines = {} }
  end,
})

return M
