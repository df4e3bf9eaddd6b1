--- The part of a buffer that is to be rewritten: whole lines, the characters of a selection, or a block of columns. Its place is
--- kept by marks, which go along with what is changed above it; what is in it is compared with what was sent.
local M = {}

local api = vim.api
local changes = require('sanderling.editing.changes')
local hunks = require('sanderling.editing.hunks')
local undo = require('sanderling.editing.undo')

local ns = api.nvim_create_namespace('sanderling_rewrite_regions')

---@alias sanderling.rewrite.region.Kind 'lines'|'characters'|'block'

--- Bytes of rows, from 0, the second column behind the last; for a block one for each row.
---@alias sanderling.rewrite.region.Span [integer, integer, integer, integer] row, col, end row, end col

---@class (exact) sanderling.rewrite.region.Region
---@field buf integer
---@field kind sanderling.rewrite.region.Kind
---@field text string[] as it was sent
---@field private marks integer[] one, or one for each row of a block
---@field private first_vcol integer of a block: the display column at which it begins, from 0
local Region = {}
Region.__index = Region

---@param buf integer
---@param row integer
---@return string
local function line_at(buf, row)
  return api.nvim_buf_get_lines(buf, row, row + 1, true)[1]
end

---@param buf integer
---@param kind sanderling.rewrite.region.Kind
---@param spans sanderling.rewrite.region.Span[]
---@param first_vcol? integer
---@param is_unseen? boolean
---@return sanderling.rewrite.region.Region
local function new(buf, kind, spans, first_vcol, is_unseen)
  local self = setmetatable({ buf = buf, kind = kind, marks = {}, text = {} }, Region)
  self.first_vcol = first_vcol or 0
  for i, span in ipairs(spans) do
    local row, col, end_row, end_col = unpack(span)
    self.marks[i] = api.nvim_buf_set_extmark(buf, ns, row, col, {
      end_row = end_row,
      end_col = end_col,
      right_gravity = col < end_col or row < end_row,
      end_right_gravity = false,
      hl_group = not is_unseen and 'AgentEditRange' or nil,
      hl_eol = kind == 'lines',
      strict = false,
    })
    vim.list_extend(self.text, api.nvim_buf_get_text(buf, row, col, end_row, end_col, {}))
  end
  return self
end

--- The lines from `first` to `last`, whole.
---@param buf integer
---@param first integer line, from 1
---@param last integer
---@param is_unseen? boolean they look as before
---@return sanderling.rewrite.region.Region
function M.lines(buf, first, last, is_unseen)
  local end_col = #line_at(buf, last - 1)
  return new(buf, 'lines', { { first - 1, 0, last - 1, end_col } }, nil, is_unseen)
end

--- The edits, or the answers, of `known` whose regions are in `buf`.
---@generic T: { region: sanderling.rewrite.region.Region }
---@param known table<any, T>
---@param buf integer
---@return T[]
function M.of_buffer(known, buf)
  return vim.tbl_filter(function(each)
    return each.region.buf == buf
  end, vim.tbl_values(known))
end

--- The one of `list` whose region the cursor is in; where there is only one, and it need not be at the cursor, that.
---@generic T: { region: sanderling.rewrite.region.Region }
---@param list T[] of the current buffer
---@param is_at_cursor? boolean
---@return T?
function M.here(list, is_at_cursor)
  local row = api.nvim_win_get_cursor(0)[1] - 1
  for _, each in ipairs(list) do
    local first, last = each.region:rows()
    if first and row >= first and row <= last then
      return each
    end
  end
  return not is_at_cursor and #list == 1 and list[1] or nil
end

--- The bytes of a row between two positions as getregionpos() gives them.
---@param buf integer
---@param pair [integer[], integer[]]
---@return sanderling.rewrite.region.Span
local function span_of(buf, pair)
  local from, to = unpack(pair)
  local row = from[2] - 1
  local length = #line_at(buf, row)
  local first = from[3] == 0 and length or math.min(from[3] - 1, length) -- 0: the line ends before it
  local behind = from[3] == 0 and first or math.min(to[3], length)
  return { row, first, row, math.max(first, behind) }
end

--- Refuse a block whose edge lies within a tab, or a wide character: it has no bytes of its own there.
---@param pair [integer[], integer[]]
local function check_edges(pair)
  local from, to = unpack(pair)
  if (from[3] > 0 and from[4] > 0) or to[4] > 0 then
    local text = 'The block cuts a tab or a wide character in line %d: select other columns.'
    error(text:format(from[2]), 0)
  end
end

--- The characters, or the columns, between two positions as getpos() gives them.
---@param buf integer the current one
---@param from integer[]
---@param to integer[]
---@param kind 'characters'|'block'
---@param goes_to_ends? boolean a block goes to the end of each line
---@return sanderling.rewrite.region.Region
function M.between(buf, from, to, kind, goes_to_ends)
  local type = kind == 'block' and '\22' or 'v'
  local pairs_ = vim.fn.getregionpos(from, to, { type = type, exclusive = false, eol = false })
  local spans = {}
  for i, pair in ipairs(pairs_) do
    if kind == 'block' and not goes_to_ends then
      check_edges(pair)
    end
    spans[i] = span_of(buf, pair)
    spans[i][4] = goes_to_ends and #line_at(buf, spans[i][1]) or spans[i][4]
  end
  if kind == 'block' then
    local function vcol(pos)
      return vim.fn.virtcol({ pos[2], pos[3] }, true)[1]
    end
    local first_vcol = math.min(vcol(from), vcol(to)) - 1
    return new(buf, kind, spans, first_vcol)
  end
  local first, last = spans[1], spans[#spans]
  return new(buf, kind, { { first[1], first[2], last[3], last[4] } })
end

--- The places of its marks by now.
---@return sanderling.rewrite.region.Span[]? nil: they are gone
function Region:spans()
  local spans = {}
  for i, mark in ipairs(api.nvim_buf_is_loaded(self.buf) and self.marks or {}) do
    local row, col, details =
      unpack(api.nvim_buf_get_extmark_by_id(self.buf, ns, mark, { details = true }))
    if not row then
      return nil
    end
    spans[i] = { row, col, details.end_row or row, details.end_col or col }
  end
  return #spans > 0 and spans or nil
end

--- The rows that it is in by now, from 0.
---@return integer? first nil: its buffer, or its place, is gone
---@return integer last
function Region:rows()
  local spans = self:spans()
  if not spans then
    return nil, -1
  end
  return spans[1][1], math.min(spans[#spans][3], api.nvim_buf_line_count(self.buf) - 1)
end

---@return boolean what it holds is what was sent
function Region:is_as_sent()
  local spans, text = self:spans(), {}
  for _, span in ipairs(spans or {}) do
    local row, col, end_row, end_col = unpack(span)
    if end_row >= api.nvim_buf_line_count(self.buf) then
      return false
    end
    local found = self.kind == 'lines' and api.nvim_buf_get_lines(self.buf, row, end_row + 1, true)
      or api.nvim_buf_get_text(self.buf, row, col, end_row, end_col, {})
    vim.list_extend(text, found)
  end
  return spans ~= nil and vim.deep_equal(text, self.text)
end

---@private
---@param span sanderling.rewrite.region.Span
---@param lines string[]
function Region:replace_lines(span, lines)
  local edit = { row = span[1], old = self.text, new = lines }
  changes.with_modifiers('keepjumps', function()
    changes.apply(self.buf, hunks.narrow({ edit }))
  end)
end

--- Replace columns row by row. A row that ends before them is filled up with blanks, if it gets something.
---@private
---@param spans sanderling.rewrite.region.Span[]
---@param lines string[]
function Region:replace_block(spans, lines)
  for i = #spans, 1, -1 do
    local row, col, end_row, end_col = unpack(spans[i])
    local line, text = line_at(self.buf, row), lines[i]
    local missing = col == #line and self.first_vcol - vim.fn.strdisplaywidth(line) or 0
    text = text ~= '' and (' '):rep(missing) .. text or text
    api.nvim_buf_set_text(self.buf, row, col, end_row, end_col, { text })
  end
end

--- The reason why `lines` cannot stand in its place, if there is one.
---@param lines string[]
---@return string?
function Region:refusal(lines)
  if not api.nvim_buf_is_loaded(self.buf) then
    return 'The buffer is closed: nothing was changed.'
  elseif not vim.bo[self.buf].modifiable then
    return "The buffer is locked ('nomodifiable'): nothing was changed."
  elseif not self:is_as_sent() then
    return 'What is to be replaced has changed since it was sent: nothing was changed. Undo that, or ask again.'
  elseif self.kind == 'block' and #lines ~= #self.text then
    local text = 'The block has %d lines and the answer %d: nothing was changed.'
    return text:format(#self.text, #lines)
  end
end

--- Put `lines` in its place, as one change that can be undone.
---@param lines string[] none: whole lines go
function Region:replace(lines)
  local spans = assert(self:spans())
  undo.in_block(self.buf, false, function()
    if self.kind == 'lines' then
      self:replace_lines(spans[1], lines)
    elseif self.kind == 'block' then
      self:replace_block(spans, lines)
    else
      local row, col, end_row, end_col = unpack(spans[1])
      api.nvim_buf_set_text(self.buf, row, col, end_row, end_col, #lines > 0 and lines or { '' })
    end
  end)
end

--- Keep the region's place no longer.
function Region:forget()
  for _, mark in ipairs(api.nvim_buf_is_loaded(self.buf) and self.marks or {}) do
    api.nvim_buf_del_extmark(self.buf, ns, mark)
  end
  self.marks = {}
end

return M
