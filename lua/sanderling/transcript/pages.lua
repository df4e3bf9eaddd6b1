--- Pages of earlier history: drawn into a scratch buffer, inserted at the top, and requested when a window comes near
--- the top.
---
--- Neovim moves views, cursors, folds and marks along with lines inserted above them. That leaves windows that show the
--- very top, and windows with empty rows below the text, which the page fills.
local M = {}

local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local folds = require('sanderling.transcript.folds')
local live = require('sanderling.session.live')
local icons = require('sanderling.ui.icons')
local scratch_buffers = require('sanderling.ui.scratch')
local scroll = require('sanderling.ui.scroll')
local Writer = require('sanderling.transcript.writer')

local NEAR_LINES = 60
local MARKER = ' earlier messages'
local LOST = ': scroll up to here, or send a prompt, to load them'
local MARKER_LINES = 2 -- including the blank line below

---@class (exact) sanderling.transcript.pages.Reader a window that shows the top
---@field win integer
---@field view vim.fn.winsaveview.ret
---@field is_at_end boolean

local scratch ---@type integer?

--- Return the buffer that pages are drawn in.
---@return integer
function M.scratch()
  if not scratch or not api.nvim_buf_is_loaded(scratch) then
    scratch = scratch_buffers.new('page')
    scratch_buffers.set_buf_options(scratch, { undolevels = -1 })
  end
  return scratch
end

--- Put a line at the top of `page` that says that there is earlier history.
---@param page sanderling.transcript.Transcript an empty page
function M.mark_top(page)
  page.has_earlier = true
  page:append_block(icons.earlier .. MARKER, 'AgentPlaceholder')
end

--- The host is gone. Do not start the next host for a page until the user scrolls up, because the page itself may have
--- crashed this one.
---@param transcript sanderling.transcript.Transcript
function M.lose(transcript)
  if transcript.has_earlier and not transcript.is_lost then
    transcript:append_to_row(0, LOST)
  end
  transcript.is_lost, transcript.is_asking = true, false
end

---@param transcript sanderling.transcript.Transcript
---@return sanderling.transcript.pages.Reader[]
local function readers_of_top(transcript)
  local readers = {} ---@type sanderling.transcript.pages.Reader[]
  local follows = {} ---@type table<integer, true>
  for _, follower in ipairs(transcript:followers()) do
    follows[follower.win] = true
  end
  for _, win in ipairs(vim.fn.win_findbuf(transcript.buf)) do
    local view = api.nvim_win_call(win, vim.fn.winsaveview)
    if view.topline <= MARKER_LINES then
      readers[#readers + 1] = { win = win, view = view, is_at_end = follows[win] or false }
    end
  end
  return readers
end

--- Keep visible lines at their place on the screen. In a window that follows the text, put its end at the bottom.
---@param reader sanderling.transcript.pages.Reader
---@param transcript sanderling.transcript.Transcript
---@param count integer number of rows inserted above
local function restore(reader, transcript, count)
  api.nvim_win_call(reader.win, function()
    if reader.is_at_end then
      api.nvim_win_set_cursor(0, { transcript.last + 1, reader.view.col })
      scroll.put_last()
      return
    end
    local view = reader.view
    view.topline, view.lnum = math.max(view.topline + count, 1), math.max(view.lnum + count, 1)
    vim.fn.winrestview(view)
  end)
end

--- Copy the marks of the page's text. Markdown is highlighted when it becomes visible.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
local function copy_marks(transcript, page)
  local behind = { page.last - 1, -1 }
  local marks = api.nvim_buf_get_extmarks(page.buf, Writer.NS, 0, behind, { details = true })
  for _, mark in ipairs(marks) do
    local _, row, col, details = unpack(mark)
    details.ns_id = nil
    api.nvim_buf_set_extmark(transcript.buf, Writer.NS, row, col, details)
  end
end

--- Insert the text and marks of `page` above the transcript's, replacing the line that announced it.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
local function insert(transcript, page)
  local buf, count = transcript.buf, page.last -- without the empty line at its end
  local lines = api.nvim_buf_get_lines(page.buf, 0, count, true)
  transcript:modify(function()
    api.nvim_buf_set_lines(buf, 0, 0, true, lines)
    if transcript.has_earlier then
      api.nvim_buf_clear_namespace(buf, -1, count, count + MARKER_LINES)
      api.nvim_buf_set_lines(buf, count, count + MARKER_LINES, true, {})
      count = count - MARKER_LINES
    end
  end)
  copy_marks(transcript, page)
  blocks.shift(transcript, 0, count)
  blocks.prepend(transcript, page)
end

---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
local function fold(transcript, page)
  for _, win in ipairs(vim.fn.win_findbuf(transcript.buf)) do
    folds.make(win, page.folds, 1)
  end
  transcript:note_move()
end

--- Insert a drawn `page` at the top of `transcript`. If the buffer is locked, this raises an error and changes nothing.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
function M.put_above(transcript, page)
  page:append(page:separator())
  local is_empty = transcript.last == 0 and transcript.col == 0
  local last, readers = transcript.last, readers_of_top(transcript)
  insert(transcript, page)
  if is_empty then
    transcript.before = page.before
  end
  transcript.has_earlier, transcript.is_asking = page.has_earlier, false
  fold(transcript, page)
  for _, reader in ipairs(readers) do
    restore(reader, transcript, transcript.last - last)
  end
end

--- Request earlier history, unless that is under way.
---@param transcript sanderling.transcript.Transcript
function M.ask(transcript)
  if not transcript.has_earlier or transcript.is_asking then
    return
  end
  local action = { type = 'show_earlier', before = transcript.start }
  transcript.is_asking = true -- set first, because a host that cannot start reports that in the transcript
  if not live.act(vim.b[transcript.buf].sanderling_session, action) then
    transcript.is_asking = false
  end
end

--- Request earlier history if the top of `win` is near.
---@param transcript sanderling.transcript.Transcript
---@param win integer
---@param is_wanted? boolean the user has scrolled up
function M.ask_if_near(transcript, win, is_wanted)
  if (is_wanted or not transcript.is_lost) and vim.fn.line('w0', win) <= NEAR_LINES then
    M.ask(transcript)
  end
end

--- Request history again from a host that now serves the session, for each window near the top.
---@param transcript sanderling.transcript.Transcript
function M.ask_anew(transcript)
  transcript.is_lost = false
  for _, win in ipairs(vim.fn.win_findbuf(transcript.buf)) do
    M.ask_if_near(transcript, win)
  end
end

return M
