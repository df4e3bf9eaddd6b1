--- The operator of edits, and its repetition by `.`: the same instruction on as much text from the cursor on.
local M = {}

local api = vim.api
local regions = require('sanderling.rewrite.region')
local rewrite = require('sanderling.rewrite')

---@type string? what `.` asks for once more
local instruction
local goes_to_ends = false -- a block that was selected with `$`
---@type [integer, integer]? the cursor, while the operator only runs so that `.` knows it
local arming

---@param type 'line'|'char'|'block'
---@return sanderling.rewrite.region.Region
local function region_of(type)
  local buf = api.nvim_get_current_buf()
  local from, to = vim.fn.getpos("'["), vim.fn.getpos("']")
  if type == 'line' then
    return regions.lines(buf, from[2], to[2])
  end
  local kind = type == 'block' and 'block' or 'characters'
  return regions.between(buf, from, to, kind, goes_to_ends)
end

---@param type 'line'|'char'|'block'
local function run(type)
  if arming then
    local cursor = arming
    arming = nil
    return pcall(api.nvim_win_set_cursor, 0, cursor)
  end
  local ok, region = pcall(region_of, type)
  if not ok then
    return require('sanderling.ui.message').tell_error('AgentEdit', region)
  end
  -- Not a buffer to write in: `.` would then repeat what was typed there.
  instruction = instruction or vim.fn.input({ prompt = 'Edit: ', cancelreturn = '' })
  if instruction:find('%S') then
    rewrite.begin(region, instruction)
  else
    instruction = nil
    region:forget()
  end
end

--- 'operatorfunc'.
---@param type 'line'|'char'|'block'
function M.run(type)
  local ok, err = pcall(run, type)
  if not ok then
    require('sanderling.ui.message').tell_error('AgentEdit', err)
  end
end

local function set_operator()
  vim.go.operatorfunc = "v:lua.require'sanderling.rewrite.operator'.run"
end

--- Begin the operator: a motion follows, or a selection is there.
function M.start()
  instruction, arming = nil, nil
  goes_to_ends = api.nvim_get_mode().mode == '\22' and vim.fn.getcurpos()[5] == vim.v.maxcol
  set_operator()
  local count = vim.v.count > 0 and tostring(vim.v.count) or ''
  api.nvim_feedkeys(count .. 'g@', 'ni', false) -- before what is typed already
end

--- Let `.` repeat an edit of these lines, which was no operator's.
---@param first integer line
---@param last integer
---@param text string
local function arm(first, last, text)
  if api.nvim_get_mode().mode ~= 'n' then
    return
  end
  local cursor = api.nvim_win_get_cursor(0)
  instruction, goes_to_ends, arming = text, false, cursor
  set_operator()
  api.nvim_win_set_cursor(0, { first, 0 })
  api.nvim_feedkeys(('g@%d_'):format(last - first + 1), 'ni', false)
end

--- `:AgentEdit`: an edit of lines, or a further instruction where one waits.
---@param text string
---@param range? [integer, integer]
function M.edit(text, range)
  local here = rewrite.here()
  if here and not range then
    return rewrite.refine(here, text)
  end
  local lnum = api.nvim_win_get_cursor(0)[1]
  local first, last = unpack(range or { lnum, lnum })
  vim.cmd(('silent! %d,%dfoldopen!'):format(first, last)) -- what is below a closed fold is not drawn
  rewrite.begin(regions.lines(api.nvim_get_current_buf(), first, last), text)
  arm(first, last, text)
end

return M
