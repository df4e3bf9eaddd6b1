--- Answers in a float at the code: the transcript of their session, with additional keys.
local M = {}

local api = vim.api
local sessions = require('sanderling.inline.sessions')
local float = require('sanderling.ui.float')
local keys = require('sanderling.ui.keys')
local page = require('sanderling.access.page')
local preview = require('sanderling.inline.preview')
local scratch = require('sanderling.ui.scratch')
local window_options = require('sanderling.chat.window_options')
local words = require('sanderling.ui.words')

local MAX_CELLS, MIN_CELLS, MIN_ROWS, BORDERS = 90, 20, 5, 2
local NAMED_KEYS = {
  { 'stop', 'stops' },
  { 'answer_carry', 'to the chat' },
  { 'answer_further', 'follow-up' },
  { 'close', 'closes' },
}

---@class (exact) sanderling.inline.floats.Shown
---@field session sanderling.chat.session.Session
---@field region sanderling.inline.region.Region in question
---@field title string

--- Return the position of the float: below the lines, as large as the window allows.
---@param shown sanderling.inline.floats.Shown
---@return vim.api.keyset.win_config
local function place(shown)
  local win = api.nvim_get_current_win()
  local first, last = shown.region:rows()
  local height = math.max(MIN_ROWS, math.floor(vim.o.lines / 2))
  if first then
    preview.reveal(shown.region.buf, first, last, height + BORDERS)
  end
  local row = math.max(vim.fn.line('w0'), math.min(last + 1, vim.fn.line('w$'))) - 1
  return {
    relative = 'win',
    win = win,
    bufpos = { row, 0 },
    width = math.max(MIN_CELLS, math.min(MAX_CELLS, api.nvim_win_get_width(win) - 4)),
    height = height,
    border = 'rounded',
    title = (' %s '):format(words.fitting(words.plain(shown.title), MAX_CELLS - 10)),
    footer = float.naming(NAMED_KEYS),
    footer_pos = 'right',
    zindex = float.ZINDEX.page,
  }
end

--- Show the keys of an answer and of its transcript on a page.
local function show_keys()
  local lines, seen = keys.lines('answer'), {}
  for _, line in ipairs(lines) do
    seen[line:match('%s%s(%S.*)$')] = true
  end
  local others = vim.tbl_filter(function(line)
    return not seen[line:match('%s%s(%S.*)$')]
  end, keys.lines('transcript'))
  vim.list_extend(lines, { '' })
  page.view('Keys', vim.list_extend(lines, others), 'keys', { has_columns = true })
end

---@param shown sanderling.inline.floats.Shown
---@param win integer
---@param from integer
local function close(shown, win, from)
  sessions.finish(shown)
  float.leave(win, from)
end

---@param shown sanderling.inline.floats.Shown
---@param win integer
---@param from integer
local function set_keys(shown, win, from)
  local buf = shown.session.transcript_buf
  local function ask_further()
    sessions.ask_further(shown)
  end
  page.set_keys(buf, 'answer', {
    close = function()
      close(shown, win, from)
    end,
    answer_carry = function()
      keys.clear(buf, 'answer')
      sessions.carry(shown, function()
        float.leave(win, from)
      end)
    end,
    answer_further = ask_further,
    write = ask_further,
    show_keys = show_keys,
  })
end

--- Show an answer in a float, and focus it.
---@param shown sanderling.inline.floats.Shown
function M.open(shown)
  local from = api.nvim_get_current_win()
  local win = api.nvim_open_win(shown.session.transcript_buf, true, place(shown))
  window_options.set_transcript(win)
  scratch.set_win_options(win, { winfixbuf = true })
  set_keys(shown, win, from)
  api.nvim_create_autocmd('WinClosed', {
    pattern = tostring(win),
    once = true,
    desc = 'Agent: end the session of the answer',
    callback = vim.schedule_wrap(function()
      sessions.finish(shown)
    end),
  })
end

return M
