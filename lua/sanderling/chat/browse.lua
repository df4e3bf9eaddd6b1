--- Navigation within a transcript, and from it to files.
local api = vim.api
local files = require('sanderling.access.files')
local message = require('sanderling.ui.message')
local tools = require('sanderling.transcript.blocks.tool')
local words = require('sanderling.ui.words')

local M = {}

--- Go to the next or previous of `rows`, which are sorted, `vim.v.count1` times.
---@param rows integer[]
---@param step -1|1
local function go_to_row(rows, step)
  local row = vim.fn.line('.') - 1
  local target
  for _ = 1, vim.v.count1 do
    local next_row
    for _, each in ipairs(rows) do
      if step > 0 and each > row then
        next_row = next_row or each
      elseif step < 0 and each < row then
        next_row = each
      end
    end
    row = next_row or row
    target = next_row or target
  end
  if target then
    vim.cmd("normal! m'")
    api.nvim_win_set_cursor(0, { target + 1, 0 })
  end
end

---@param session sanderling.chat.session.Session
---@param step -1|1
function M.go_to_message(session, step)
  go_to_row(session.transcript.headers, step)
end

--- Go to the next or previous tool call.
---@param session sanderling.chat.session.Session
---@param step -1|1
function M.go_to_tool(session, step)
  local rows = vim.tbl_map(function(block)
    return block.first
  end, session.transcript.tool_blocks)
  table.sort(rows)
  go_to_row(rows, step)
end

-- text objects --------------------------------------------------------------------------------------------------------

--- Select whole lines. An empty range cancels a pending operator.
---@param first integer row
---@param last integer row
local function select_rows(first, last)
  if first > last then
    api.nvim_feedkeys(vim.keycode('<Esc>'), 'n', false)
    return
  end
  local is_visual = vim.fn.mode():find('^[vV\22]') ~= nil
  vim.cmd(('normal! %s%dGV%dG'):format(is_visual and '\27' or '', first + 1, last + 1))
end

--- Return the rows of the message under the cursor.
---@param session sanderling.chat.session.Session
---@return integer header
---@return integer last last row, without trailing blank lines
function M.message_here(session)
  local row, header, after = vim.fn.line('.') - 1, 0, vim.fn.line('$')
  for _, each in ipairs(session.transcript.headers) do
    if each <= row then
      header = each
    else
      after = math.min(after, each)
    end
  end
  local last = after - 1
  while last > header and vim.fn.getline(last + 1):find('^%s*$') do
    last = last - 1
  end
  return header, last
end

--- Select the message under the cursor; `is_inner`: without its header.
---@param session sanderling.chat.session.Session
---@param is_inner boolean
function M.select_message(session, is_inner)
  local header, last = M.message_here(session)
  local first = is_inner and header + 1 or header
  while is_inner and first < last and vim.fn.getline(first + 1):find('^%s*$') do
    first = first + 1
  end
  select_rows(first, last)
end

--- Return the rows of the fenced block under the cursor, and its info string.
---@param session sanderling.chat.session.Session
---@return integer? first row of the opening fence
---@return integer? last row of the closing fence
---@return string? info info string
function M.code_here(session)
  local row, header, last = vim.fn.line('.') - 1, M.message_here(session)
  local first, fence, info
  for each, line in ipairs(api.nvim_buf_get_lines(0, header, last + 1, false)) do
    local here, before = header + each - 1, fence
    fence = words.fence_behind(line, before)
    if fence and not before then
      first, info = here, line:match('^%s*[`~]+%s*([^%s`]*)')
    elseif before and not fence and row >= first and row <= here then
      return first, here, info
    end
  end
end

--- Select the fenced block under the cursor; `is_inner`: without its fences.
---@param session sanderling.chat.session.Session
---@param is_inner boolean
function M.select_code(session, is_inner)
  local first, last = M.code_here(session)
  if not first or not last then
    return select_rows(1, 0)
  end
  select_rows(is_inner and first + 1 or first, is_inner and last - 1 or last)
end

--- Return the child session that the line under the cursor, in the transcript, is about.
---@param session sanderling.chat.session.Session
---@return string? id
function M.child_here(session)
  local lnum = vim.fn.line('.')
  local closed = vim.fn.foldclosed(lnum)
  local row = (closed == -1 and lnum or closed) - 1
  local block = tools.block_at(session.transcript, row)
  return block and row == block.first and block.child or nil
end

---@param session sanderling.chat.session.Session
---@return sanderling.access.files.Place?
local function place_in_transcript(session)
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  local closed = vim.fn.foldclosed(lnum)
  local row = closed == -1 and lnum - 1 or closed - 1
  return tools.place_at(session.transcript, row, closed == -1 and col or 0, session.project)
end

--- Return the file named on the line under the cursor, in the transcript or the prompt. If there is none, say so.
---@param session sanderling.chat.session.Session
---@return sanderling.access.files.Place?
function M.place_here(session)
  local place
  if api.nvim_get_current_buf() == session.transcript_buf then
    place = place_in_transcript(session)
  else
    place = files.place_here(session.project)
  end
  if not place then
    message.tell(files.NOT_NAMED)
  end
  return place
end

--- Show the whole tool use under the cursor.
---@param session sanderling.chat.session.Session
function M.inspect(session)
  local block = tools.block_at(session.transcript, vim.fn.line('.') - 1)
  if block then
    session:ask({ type = 'inspect_tool_use', id = block.id }, function(use, is_here)
      if is_here then
        tools.show(use)
      end
    end)
  else
    message.tell('No tool call under the cursor.')
  end
end

return M
