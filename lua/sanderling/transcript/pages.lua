--- The pages of what was said before: drawn apart, put above all that is shown, and asked for when a window comes near the top.
---
--- Neovim moves views, cursors, folds and marks along with lines that are put in above them. Left to do are the windows that show
--- the very top, and those that end in an empty space which the page fills.
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
local MARKER_LINES = 2 -- with the blank one below

---@class (exact) sanderling.transcript.pages.Reader of the top
---@field win integer
---@field view vim.fn.winsaveview.ret
---@field is_at_end boolean

local scratch ---@type integer?

--- A buffer to draw a page in.
---@return integer
function M.scratch()
  if not scratch or not api.nvim_buf_is_loaded(scratch) then
    scratch = scratch_buffers.new('page')
    scratch_buffers.set_buf_options(scratch, { undolevels = -1 })
  end
  return scratch
end

--- Say at the top of `page` that something comes before it.
---@param page sanderling.transcript.Transcript an empty one
function M.mark_top(page)
  page.has_earlier = true
  page:append_block(icons.earlier .. MARKER, 'AgentPlaceholder')
end

--- The host is gone. The next one is not started for a page before a person scrolls up: it may end of that again.
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

--- Keep what is read where it is on the screen; where the text has ended above the end of the window, it now ends there.
---@param reader sanderling.transcript.pages.Reader
---@param transcript sanderling.transcript.Transcript
---@param count integer of rows that were put in above
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

--- Copy the marks of the page's text. (What is Markdown is marked when it is seen.)
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

--- Put the text and the marks of `page` above the transcript's, in place of the line that says that there is more.
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

--- Give all windows the folds of `page`.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
local function fold(transcript, page)
  for _, win in ipairs(vim.fn.win_findbuf(transcript.buf)) do
    folds.make(win, page.folds, 1)
  end
  transcript:note_move()
end

--- Put `page`, which is drawn, above all that `transcript` shows. When that is locked, nothing has happened.
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

--- `win` shows other lines than before: ask for what comes before them, when that is near.
---@param transcript sanderling.transcript.Transcript
---@param win integer
---@param is_wanted? boolean by a person, who has scrolled up
function M.ask_if_near(transcript, win, is_wanted)
  local is_due = transcript.has_earlier and not transcript.is_asking
  if is_due and (is_wanted or not transcript.is_lost) and vim.fn.line('w0', win) <= NEAR_LINES then
    local action = { type = 'show_earlier', before = transcript.start }
    transcript.is_asking = true -- first: a host that cannot start says so in the transcript
    if not live.act(vim.b[transcript.buf].sanderling_session, action) then
      transcript.is_asking = false
    end
  end
end

--- A host serves the session: ask it for what is near in any window.
---@param transcript sanderling.transcript.Transcript
function M.ask_anew(transcript)
  transcript.is_lost = false
  for _, win in ipairs(vim.fn.win_findbuf(transcript.buf)) do
    M.ask_if_near(transcript, win)
  end
end

return M
