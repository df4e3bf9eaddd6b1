--- Ways through a transcript, and from it to files.
local api = vim.api
local files = require('sanderling.ui.files')
local message = require('sanderling.ui.message')
local tools = require('sanderling.transcript.blocks.tool')

local M = {}

--- Go to the header before or after the cursor, `vim.v.count1` times.
---@param transcript sanderling.transcript.Transcript
---@param step -1|1
function M.go_to_message(transcript, step)
  local row = vim.fn.line('.') - 1
  local target
  for _ = 1, vim.v.count1 do
    local next_row
    for _, header in ipairs(transcript.headers) do
      if step > 0 and header > row then
        next_row = next_row or header
      elseif step < 0 and header < row then
        next_row = header
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
---@return sanderling.ui.files.Place?
local function place_in_transcript(session)
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  local closed = vim.fn.foldclosed(lnum)
  local row = closed == -1 and lnum - 1 or closed - 1
  return tools.place_at(session.transcript, row, closed == -1 and col or 0, session.project)
end

--- The file that the line under the cursor is about, in the transcript or the prompt; says so when there is none.
---@param session sanderling.chat.session.Session
---@return sanderling.ui.files.Place?
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

--- Ask for all that is known of the tool use under the cursor.
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
