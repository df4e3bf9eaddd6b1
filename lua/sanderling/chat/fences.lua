--- Fenced code blocks of an answer: yank them, open them, or offer them as an edit of the code in question.
local M = {}

local api = vim.api
local browse = require('sanderling.chat.browse')
local bus = require('sanderling.host.bus')
local files = require('sanderling.access.files')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.chat.fences.Block
---@field lines string[]
---@field info string info string: the language

--- Return the block under the cursor. If there is none, say so.
---@param session sanderling.chat.session.Session
---@return sanderling.chat.fences.Block?
local function block_here(session)
  local first, last, info = browse.code_here(session)
  if not first or not last then
    return message.tell('No fenced block under the cursor.')
  end
  local lines = api.nvim_buf_get_lines(session.transcript_buf, first, last, false)
  local indent = table.remove(lines, 1):match('^%s*')
  for i, line in ipairs(lines) do -- remove the indentation of a list
    lines[i] = vim.startswith(line, indent) and line:sub(#indent + 1) or line
  end
  return { lines = lines, info = info or '' }
end

--- Yank the block under the cursor into the named register.
---@param session sanderling.chat.session.Session
function M.yank(session)
  local block = block_here(session)
  if block then
    vim.fn.setreg(vim.v.register, block.lines, 'V')
    message.tell(('%s yanked.'):format(words.counted(#block.lines, 'line')))
  end
end

--- Go to a code window, opening one if there is none.
local function go_to_code()
  local win = files.code_window('')
  if win then
    api.nvim_set_current_win(win)
  else
    vim.cmd('topleft vnew')
  end
end

--- Open the block under the cursor in a new unnamed buffer.
---@param session sanderling.chat.session.Session
function M.open(session)
  local block = block_here(session)
  if not block then
    return
  end
  go_to_code()
  vim.cmd.new()
  api.nvim_buf_set_lines(0, 0, -1, true, block.lines)
  local name = block.info:match('^[%w_+%-]+$')
  vim.bo.filetype = name and (vim.filetype.match({ filename = 'x.' .. name }) or name) or ''
end

--- Return the lines that the question above the cursor was about, if a buffer still contains them unchanged.
---@param session sanderling.chat.session.Session
---@return integer? buf
---@return integer? first line
---@return integer? last
local function asked_about(session)
  local row, buf_of, turn = vim.fn.line('.') - 1, session.transcript_buf, nil
  for _, each in ipairs(session.transcript.turns) do
    turn = each.first <= row and each or turn
  end
  local lines = turn and api.nvim_buf_get_lines(buf_of, turn.first, turn.answer, false) or {}
  for i, line in ipairs(lines) do
    local path, first, last = line:match('^(.+):(%d+)%-?(%d*)$')
    last = last == '' and first or last
    local real = path and (lines[i + 1] or ''):find('^```') and files.find(path, session.project)
    local buf = real and vim.fn.bufnr('^' .. vim.fn.fnameescape(real) .. '$') or -1
    if buf ~= -1 and api.nvim_buf_is_loaded(buf) then
      first, last = assert(tonumber(first)), assert(tonumber(last))
      local now = api.nvim_buf_get_lines(buf, first - 1, last, false)
      if vim.deep_equal(now, vim.list_slice(lines, i + 2, i + 1 + #now)) then
        return buf, first, last
      end
    end
  end
end

--- Offer an edit that replaces lines of a buffer by a text; inline/edits.lua makes it.
---@param buf integer
---@param first integer line
---@param last integer
---@param text string
local function offer(buf, first, last, text)
  local win = vim.fn.bufwinid(buf)
  if win ~= -1 then
    api.nvim_set_current_win(win)
  else
    go_to_code()
    loading.enter(buf)
  end
  api.nvim_win_set_cursor(0, { first, 0 })
  bus.tell('', { type = 'local_offered', buf = buf, first = first, last = last, text = text })
end

--- Offer the block under the cursor as an edit: of the lines in question, else below the cursor in the code window.
---@param session sanderling.chat.session.Session
function M.apply(session)
  local block = block_here(session)
  if not block then
    return
  end
  local text = table.concat(block.lines, '\n')
  local buf, first, last = asked_about(session)
  if buf then
    return offer(buf, assert(first), assert(last), text)
  end
  go_to_code()
  local lnum, line = api.nvim_win_get_cursor(0)[1], api.nvim_get_current_line()
  text = line:find('%S') and line .. '\n' .. text or text
  offer(api.nvim_get_current_buf(), lnum, lnum, text)
end

return M
