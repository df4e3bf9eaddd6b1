--- The operator for edits. `.` repeats it: the same instruction on as much text from the cursor.
local M = {}

local api = vim.api
local message = require('sanderling.ui.message')
local operator = require('sanderling.ui.operator')
local regions = require('sanderling.inline.region')
local edits = require('sanderling.inline.edits')

---@type string? the instruction that `.` repeats
local instruction
local goes_to_ends = false -- a block selected with `$`

---@param type 'line'|'char'|'block'
---@return sanderling.inline.region.Region
local function region_of(type)
  local buf = api.nvim_get_current_buf()
  local from, to = vim.fn.getpos("'["), vim.fn.getpos("']")
  if type == 'line' then
    return regions.lines(buf, from[2], to[2])
  end
  local kind = type == 'block' and 'block' or 'characters'
  return regions.between(buf, from, to, kind, goes_to_ends)
end

---@param region sanderling.inline.region.Region
---@param text string
local function begin(region, text)
  instruction = text
  edits.begin(region, text)
end

---@param type 'line'|'char'|'block'
local function edit(type)
  local ok, region = pcall(region_of, type)
  if not ok then
    return message.tell_error('AgentEdit', region)
  elseif instruction then
    return begin(region, instruction)
  end
  local again = operator.pause() -- `.` would repeat the text typed in the float
  local function go_on()
    if api.nvim_get_current_buf() == region.buf then
      again(type)
    end
  end
  edits.ask(region, 'Edit', function(text)
    begin(region, text)
    go_on()
  end, function()
    region:forget()
    go_on()
  end)
end

---@param type 'line'|'char'|'block'
local function run(type)
  local ok, err = pcall(edit, type)
  if not ok then
    message.tell_error('AgentEdit', err)
  end
end

--- Start the operator on the selection, or on the motion that follows.
function M.start()
  instruction = nil
  goes_to_ends = api.nvim_get_mode().mode == '\22' and vim.fn.getcurpos()[5] == vim.v.maxcol
  operator.start(run)
end

--- Edit lines, and let `.` repeat that.
---@param text string
---@param region sanderling.inline.region.Region
local function edit_lines(text, region)
  local first, last = region:rows()
  if not first then
    return
  end
  begin(region, text)
  if api.nvim_get_current_buf() == region.buf then
    goes_to_ends = false
    operator.arm(first + 1, last + 1, run)
  end
end

--- `:AgentEdit`: edit lines, or refine the edit that is there. Without a text, ask for it in the small prompt.
---@param text string
---@param range? [integer, integer]
function M.edit(text, range)
  local here = edits.here()
  if here and not range then
    if text == '' then
      return edits.ask_to_refine()
    end
    return edits.refine(here, text)
  end
  local lnum = api.nvim_win_get_cursor(0)[1]
  local first, last = unpack(range or { lnum, lnum })
  vim.cmd(('silent! %d,%dfoldopen!'):format(first, last)) -- nothing is drawn below a closed fold
  if lnum < first or lnum > last then -- show it where the user looks
    vim.cmd("normal! m'")
    api.nvim_win_set_cursor(0, { math.min(last, api.nvim_buf_line_count(0)), 0 })
  end
  local region = regions.lines(api.nvim_get_current_buf(), first, last)
  if text ~= '' then
    return edit_lines(text, region)
  end
  edits.ask(region, 'Edit', function(answer)
    edit_lines(answer, region)
  end, function()
    region:forget()
  end)
end

return M
