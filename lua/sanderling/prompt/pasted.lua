--- Pasted text in a prompt that is part of an open buffer. A note next to it offers a key that replaces it by a
--- mention, which tells the model where the text is and takes fewer lines.
local M = {}

local api = vim.api
local keys = require('sanderling.ui.keys')
local live = require('sanderling.session.live')
local time = require('sanderling.ui.time')
local words = require('sanderling.ui.words')

local MIN_LINES = 3
local MAX_LINES = 5000 -- of a paste; of a buffer ten times as many
local PAUSE_MS = 150 -- a long paste arrives in pieces, <C-r> line by line
local ns = api.nvim_create_namespace('sanderling_pasted')

---@class (exact) sanderling.prompt.pasted.Place
---@field buf integer
---@field first integer line, from 1
---@field head string text before it in its first line of the prompt
---@field tail string text after it in its last line

--- Return whether `text` is found in `lines` from line `at` on. Its first and last line may contain more than the
--- file's lines, or less.
---@param text string[]
---@param lines string[]
---@param at integer
---@return string? head
---@return string tail
local function fits(text, lines, at)
  for i = 2, #text - 1 do
    if text[i] ~= lines[at + i - 1] then
      return nil, ''
    end
  end
  local first, last = words.trimmed(lines[at]), lines[at + #text - 1]
  local is_part = vim.endswith(lines[at], words.trimmed(text[1]))
  local head = is_part and ''
    or first ~= '' and vim.endswith(text[1], first) and text[1]:sub(1, -#first - 1)
  if not head then
    return nil, ''
  elseif vim.startswith(last, text[#text]) then
    return head, ''
  end
  local is_whole = last ~= '' and vim.startswith(text[#text], last)
  return is_whole and head or nil, is_whole and text[#text]:sub(#last + 1) or ''
end

---@param text string[]
---@param buf integer
---@return sanderling.prompt.pasted.Place?
local function place_in(text, buf)
  local lines = api.nvim_buf_get_lines(buf, 0, MAX_LINES * 10, false)
  for at = 1, #lines - #text + 1 do
    if lines[at + 1] == text[2] then
      local head, tail = fits(text, lines, at)
      if head then
        return { buf = buf, first = at, head = head, tail = tail }
      end
    end
  end
end

--- Return the open file that contains `text`. Unlisted buffers are skipped.
---@param text string[]
---@return sanderling.prompt.pasted.Place?
local function find(text)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local is_file = api.nvim_buf_is_loaded(buf)
      and vim.bo[buf].buflisted
      and vim.bo[buf].buftype == ''
      and api.nvim_buf_get_name(buf) ~= ''
    local place = is_file and place_in(text, buf)
    if place then
      return place
    end
  end
end

--- Return the rows of a paste without blank lines at its ends.
---@param buf integer
---@param first integer row
---@param last integer end row
---@return integer first
---@return string[] text
local function trimmed(buf, first, last)
  local text = api.nvim_buf_get_lines(buf, first, last, false)
  while #text > 0 and not text[#text]:find('%S') do
    text[#text] = nil
  end
  while #text > 0 and not text[1]:find('%S') do
    table.remove(text, 1)
    first = first + 1
  end
  return first, text
end

---@param place sanderling.prompt.pasted.Place
---@param count integer
---@param project string
---@return string
local function mention_of(place, count, project)
  local name = api.nvim_buf_get_name(place.buf)
  local path = (vim.fs.relpath(project, name) or name):gsub(' ', '\\ ')
  return ('@%s:%d-%d'):format(path, place.first, place.first + count - 1)
end

---@class (exact) sanderling.prompt.pasted.Offer
---@field mark integer
---@field note_mark integer
---@field text string[] text in the prompt
---@field instead string replacement

---@type table<integer, sanderling.prompt.pasted.Offer[]> by buffer of a prompt
local offers = {}

--- Return the part of new text that is in an open file: all of it, or without a first or last line that was typed
--- meanwhile.
---@param buf integer of the prompt
---@param first integer row
---@param last integer end row
---@return sanderling.prompt.pasted.Place? place
---@return integer row
---@return string[] text
local function part_of_file(buf, first, last)
  for _, less in ipairs({ { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 } }) do
    local row, text = trimmed(buf, first + less[1], last - less[2])
    local place = #text >= MIN_LINES and #text <= MAX_LINES and find(text) or nil
    if place then
      return place, row, text
    end
  end
  return nil, first, {}
end

--- Return the longest note that fits, and the last line that it fits next to: the end of a paste is visible.
---@param mention string
---@param text string[]
---@param width integer
---@return string note
---@return integer line of `text`
local function note_for(mention, text, width)
  local key = keys.name(keys.chosen.mention_pasted, ':help sanderling-pasted')
  local note
  for _, form in ipairs({ '%s turns this into %s', '%s: %s' }) do
    note = words.plain(form:format(key, mention))
    for i = #text, 1, -1 do
      if vim.fn.strdisplaywidth(text[i]) + 3 + api.nvim_strwidth(note) <= width then
        return note, i
      end
    end
  end
  return note, #text
end

---@param buf integer
---@param offer sanderling.prompt.pasted.Offer
local function take_back(buf, offer)
  api.nvim_buf_del_extmark(buf, ns, offer.mark)
  api.nvim_buf_del_extmark(buf, ns, offer.note_mark)
  offers[buf] = vim.tbl_filter(function(other)
    return other ~= offer
  end, offers[buf])
end

--- Extend new rows by an earlier offer directly above: a paste may arrive slowly.
---@param buf integer
---@param first integer row
---@param last integer end row
---@return integer first
---@return integer last
local function with_beginning(buf, first, last)
  for _, offer in ipairs(offers[buf] or {}) do
    local row, _, details =
      unpack(api.nvim_buf_get_extmark_by_id(buf, ns, offer.mark, { details = true }))
    if row and row <= first and details.end_row >= first - 1 then
      take_back(buf, offer)
      return row, math.max(last, details.end_row + 1)
    end
  end
  return first, last
end

---@param buf integer
---@param first integer row
---@param last integer end row
local function look(buf, first, last)
  local session = api.nvim_buf_is_loaded(buf) and live.of_buffer(buf)
  if not session then
    return
  end
  first, last = with_beginning(buf, first, last)
  local place, row, text = part_of_file(buf, first, last)
  if not place then
    return
  end
  local mention = mention_of(place, #text, session.project)
  local mark = api.nvim_buf_set_extmark(buf, ns, row, 0, {
    end_row = row + #text - 1,
    end_col = #text[#text],
    right_gravity = false,
    end_right_gravity = false,
    invalidate = true,
  })
  local note, at = note_for(mention, text, words.width_of(buf))
  local note_mark = api.nvim_buf_set_extmark(buf, ns, row + at - 1, 0, {
    virt_text = { { '  ' .. note, 'AgentPlaceholder' } },
    invalidate = true,
    end_col = #text[at],
  })
  offers[buf] = offers[buf] or {}
  table.insert(offers[buf], {
    mark = mark,
    note_mark = note_mark,
    text = text,
    instead = place.head .. mention .. place.tail,
  })
end

---@class (exact) sanderling.prompt.pasted.Pending
---@field first integer row
---@field last integer

---@type table<integer, sanderling.prompt.pasted.Pending> by buffer
local pending = {}

local look_after_pause = time.after_pause(PAUSE_MS, function(buf)
  local all = pending[buf]
  pending[buf] = nil
  if all then
    look(buf, all.first, all.last)
  end
end)

--- Check new lines in the prompt `buf` after the next pause.
---@param buf integer
---@param first integer row
---@param last integer end row before the change
---@param new_last integer end row after the change
function M.note(buf, first, last, new_last)
  local so_far = pending[buf]
  local moved = so_far and first <= so_far.last and so_far.last + new_last - last or 0
  pending[buf] = {
    first = math.min(so_far and so_far.first or first, first),
    last = math.max(moved, new_last),
  }
  look_after_pause(buf)
end

--- Return the offer at the cursor, else the last one whose text is unchanged.
---@param buf integer
---@return sanderling.prompt.pasted.Offer? offer
---@return integer row
---@return integer end_row
local function offer_here(buf)
  local here, found, first, last = api.nvim_win_get_cursor(0)[1] - 1, nil, -1, -1
  for _, offer in ipairs(offers[buf] or {}) do
    local row, _, details =
      unpack(api.nvim_buf_get_extmark_by_id(buf, ns, offer.mark, { details = true }))
    local is_there = row and not details.invalid
    local text = is_there and api.nvim_buf_get_lines(buf, row, details.end_row + 1, false)
    if text and vim.deep_equal(text, offer.text) then
      found, first, last = offer, row, details.end_row
      if here >= row and here <= last then
        break
      end
    end
  end
  return found, first, last
end

--- Replace the text by the mention, as a separate change.
---@param buf integer of the prompt, the current one
---@return boolean is_done
function M.mention(buf)
  local offer, first, last = offer_here(buf)
  if not offer then
    return false
  end
  vim.cmd('noautocmd let &l:undolevels = &l:undolevels') -- ends the undo block
  take_back(buf, offer)
  api.nvim_buf_set_lines(buf, first, last + 1, true, { offer.instead })
  vim.fn.winrestview({ topline = 1 }) -- undo the scrolling caused by the text
  api.nvim_win_set_cursor(0, { first + 1, #offer.instead })
  return true
end

return M
