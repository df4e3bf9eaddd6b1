--- A walk through changes, one after another: each in its file, with the model's words from before it made the change.
local M = {}

local api = vim.api
local commands = require('sanderling.review.commands')
local edits = require('sanderling.editing.hunks')
local find = require('sanderling.editing.find')
local icons = require('sanderling.ui.icons')
local keys = require('sanderling.ui.keys')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local order = require('sanderling.review.order')
local uses = require('sanderling.review.uses')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_walk')
local steps_ns = api.nvim_create_namespace('sanderling_walk_steps')
local MAX_ROWS = 8 -- of what the model said

---@class (exact) sanderling.review.walk.Step
---@field buf integer
---@field path string
---@field row integer
---@field count integer of lines; 0: they were only removed
---@field old string[]
---@field reason? string what the model said before
---@field mark integer follows its lines

---@class (exact) sanderling.review.walk.Walk
---@field steps sanderling.review.walk.Step[] in the order of the walk
---@field at integer

---@type sanderling.review.walk.Walk?
local walk
local newest = {} ---@type sanderling.review.walk.Step[] of the walk, or of the next one until it begins

-- the steps -----------------------------------------------------------------------------------------------------------

---@param lines string[]
---@return table<string, integer>
local function counted(lines)
  local count = {} ---@type table<string, integer>
  for _, line in ipairs(lines) do
    if line:find('%S') then
      count[line] = (count[line] or 0) + 1
    end
  end
  return count
end

---@param lines table<string, integer>
---@param others string[]
---@return integer
local function shared(lines, others)
  local count = 0
  for line, times in pairs(counted(others)) do
    count = count + math.min(times, lines[line] or 0)
  end
  return count
end

--- Return what the model said before the call that made a change: the latest that has most of its lines.
---@param reasons sanderling.Reason[]
---@param old string[]
---@param new string[]
---@return string?
local function reason_for(reasons, old, new)
  local best, most ---@type string?, integer
  local gone, come = counted(old), counted(new)
  most = 1
  for _, reason in ipairs(reasons) do
    local count = shared(gone, reason.removed or {}) + shared(come, reason.added or {})
    if count >= most then
      best, most = reason.text, count
    end
  end
  return best
end

--- Return the changes in a file.
---@param buf integer
---@param file sanderling.FileBefore
---@return sanderling.review.walk.Step[] in the order of their lines
local function steps_in(buf, file)
  local old = edits.lines_of(file.text or '')
  local lines = find.is_empty(buf) and {} or api.nvim_buf_get_lines(buf, 0, -1, true)
  return vim.tbl_map(function(part)
    local from, gone, first, count = unpack(part)
    local removed = vim.list_slice(old, from, from + gone - 1)
    local added = vim.list_slice(lines, first, first + count - 1)
    return {
      buf = buf,
      path = file.path,
      row = first - 1,
      count = count,
      old = removed,
      reason = reason_for(file.reasons or {}, removed, added),
      mark = api.nvim_buf_set_extmark(buf, steps_ns, first - 1, 0, {
        end_row = first - 1 + count,
        end_right_gravity = false,
        strict = false,
      }),
    }
  end, edits.differences(old, lines))
end

--- Update where a step is.
---@param step sanderling.review.walk.Step
local function locate(step)
  local row, _, details =
    unpack(api.nvim_buf_get_extmark_by_id(step.buf, steps_ns, step.mark, { details = true }))
  if row then
    step.row, step.count = row, math.max(0, details.end_row - row)
  end
end

-- showing -------------------------------------------------------------------------------------------------------------

---@param step sanderling.review.walk.Step
---@return [string, string][][]
local function label(step)
  local width = words.width_of(step.buf) - api.nvim_strwidth(icons.quote) - 1
  local text = ('%d/%d'):format(walk.at, #walk.steps)
  if step.reason then
    text = text .. icons.separator .. step.reason
  end
  local rows = {} ---@type [string, string][][]
  for _, line in ipairs(words.lines_of(text)) do
    for _, row in ipairs(words.filled(words.plain(line), width)) do
      rows[#rows + 1] = { { icons.quote .. ' ' .. row, 'AgentComment' } }
    end
  end
  if #rows > MAX_ROWS then
    rows = vim.list_slice(rows, 1, MAX_ROWS)
    rows[MAX_ROWS][1][1] = words.fitting(rows[MAX_ROWS][1][1], width - 2) .. icons.more
  end
  return rows
end

--- Draw what the model said above the changed lines, instead of what was drawn before.
---@param step sanderling.review.walk.Step
local function draw(step)
  api.nvim_buf_clear_namespace(step.buf, ns, 0, -1)
  local last, is_first = api.nvim_buf_line_count(step.buf) - 1, step.row == 0
  api.nvim_buf_set_extmark(step.buf, ns, is_first and 0 or math.min(step.row - 1, last), 0, {
    virt_lines = label(step),
    virt_lines_above = is_first,
    virt_lines_leftcol = true,
    right_gravity = false, -- such marks come first: these lines are above the removed lines
    undo_restore = false,
    strict = false,
  })
end

--- Scroll to the lines above the first one: Neovim does not do that automatically.
local function show_above()
  local fill = api.nvim_win_text_height(0, { start_row = 0, end_row = 0 }).fill
  vim.fn.winrestview({ topline = 1, topfill = math.min(fill, api.nvim_win_get_height(0) - 1) })
end

---@param step sanderling.review.walk.Step
local function show(step)
  draw(step)
  vim.cmd.normal({ 'zz', bang = true })
  if step.row == 0 then
    show_above()
  end
end

---@param buf integer
local function update_keys(buf)
  keys.keep(buf, 'walk', function()
    return walk ~= nil
      and vim.iter(walk.steps):any(function(step)
        return step.buf == buf
      end)
  end, {
    next_step = function()
      M.go(vim.v.count1)
    end,
    previous_step = function()
      M.go(-vim.v.count1)
    end,
  })
end

---@param list sanderling.review.walk.Step[]
---@param fn fun(buf: integer) called once for each loaded buffer
local function each_buffer(list, fn)
  local bufs = {} ---@type table<integer, true>
  for _, step in ipairs(list) do
    bufs[step.buf] = api.nvim_buf_is_loaded(step.buf) or nil
  end
  vim.iter(vim.tbl_keys(bufs)):each(fn)
end

local function clear()
  each_buffer(walk and walk.steps or {}, function(buf)
    api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  end)
end

local function stop()
  local list = newest
  clear()
  walk, newest = nil, {}
  each_buffer(list, function(buf)
    api.nvim_buf_clear_namespace(buf, steps_ns, 0, -1)
    update_keys(buf)
  end)
end

--- Return the changed lines of the current step, if the cursor is there.
---@param buf integer
---@param lnum integer
---@return [integer, integer]?
function M.lines_at(buf, lnum)
  local step = walk and walk.steps[walk.at]
  if step and step.buf == buf then
    locate(step)
    if step.row < lnum and lnum <= step.row + step.count then
      return { step.row + 1, step.row + step.count }
    end
  end
end

--- Go on by `count` steps, or back. Behind the last step the walk ends.
---@param count integer
function M.go(count)
  if not walk then
    return message.tell(':AgentDiff walk begins a walk.', vim.log.levels.WARN)
  end
  local at = walk.at + count
  if at < 1 then
    return message.tell('This is the first change.')
  elseif at > #walk.steps then
    local total = #walk.steps
    stop()
    return message.tell(
      total == 1 and 'That was the only change.'
        or ('That was the last of %d changes.'):format(total)
    )
  end
  clear()
  walk.at = at
  local step = walk.steps[at]
  if not api.nvim_buf_is_loaded(step.buf) then
    local buf, problem = loading.load(step.path, true)
    if not buf then
      return message.tell(assert(problem), vim.log.levels.WARN)
    end
    step.buf = buf
    update_keys(buf)
  end
  locate(step)
  commands.go_to(step)
  show(step)
end

api.nvim_create_autocmd('WinResized', {
  group = api.nvim_create_augroup('sanderling_walk', {}),
  desc = 'Agent: wrap what the model said about a step again',
  callback = function()
    local step = walk and walk.steps[walk.at]
    if not (step and api.nvim_buf_is_loaded(step.buf)) then
      return
    end
    locate(step)
    draw(step)
    for _, win in ipairs(step.row == 0 and vim.fn.win_findbuf(step.buf) or {}) do
      api.nvim_win_call(win, function()
        if vim.fn.line('w0') == 1 then
          show_above()
        end
      end)
    end
  end,
})

--- Walk through the changes in files.
---@param files { buf: integer, before: sanderling.FileBefore }[] whose buffers are loaded
---@param project string
function M.begin(files, project)
  stop()
  local steps = {} ---@type sanderling.review.walk.Step[]
  table.sort(files, function(a, b)
    return a.before.path < b.before.path
  end)
  for _, file in ipairs(files) do
    vim.list_extend(steps, steps_in(file.buf, file.before))
  end
  if #steps == 0 then
    return message.tell('No change is left to walk through.')
  end
  newest = steps
  uses.find(steps, function(found)
    if newest ~= steps then
      return -- another walk was asked for meanwhile
    end
    local numbers = order.sorted(#steps, found, function(number)
      local path = steps[number].path
      return order.is_test(vim.fs.relpath(project, path) or path)
    end)
    walk = {
      at = 0,
      steps = vim.tbl_map(function(number)
        return steps[number]
      end, numbers),
    }
    each_buffer(steps, update_keys)
    M.go(1)
  end)
end

return M
