--- The region of a buffer to rewrite: whole lines, the characters of a selection, or a block of columns. Extmarks follow its position;
--- its text is compared with the text that was sent.
local M = {}

local api = vim.api
local changes = require('sanderling.editing.changes')
local hunks = require('sanderling.editing.hunks')
local undo = require('sanderling.editing.undo')

local ns = api.nvim_create_namespace('sanderling_rewrite_regions')

---@alias sanderling.inline.region.Kind 'lines'|'characters'|'block'

--- Row and byte positions, from 0, end-exclusive; for a block, one per row.
---@alias sanderling.inline.region.Span [integer, integer, integer, integer] row, col, end row, end col

---@class (exact) sanderling.inline.region.Region
---@field buf integer
---@field kind sanderling.inline.region.Kind
---@field text string[] as it was sent
---@field private marks integer[] one, or one for each row of a block
---@field private first_vcol integer of a block: its first display column, from 0
local Region = {}
Region.__index = Region

---@param buf integer
---@param row integer
---@return string
local function line_at(buf, row)
  return api.nvim_buf_get_lines(buf, row, row + 1, true)[1]
end

---@param buf integer
---@param kind sanderling.inline.region.Kind
---@param spans sanderling.inline.region.Span[]
---@param first_vcol? integer
---@param is_unseen? boolean
---@return sanderling.inline.region.Region
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

---@param buf integer
---@param first integer line, from 1
---@param last integer
---@param is_unseen? boolean without highlight
---@return sanderling.inline.region.Region
function M.lines(buf, first, last, is_unseen)
  local end_col = #line_at(buf, last - 1)
  return new(buf, 'lines', { { first - 1, 0, last - 1, end_col } }, nil, is_unseen)
end

--- Return the items of `known` whose regions are in `buf`.
---@generic T: { region: sanderling.inline.region.Region }
---@param known table<any, T>
---@param buf integer
---@return T[]
function M.of_buffer(known, buf)
  return vim.tbl_filter(function(each)
    return each.region.buf == buf
  end, vim.tbl_values(known))
end

--- Return the item of `list` at the cursor, or the only one unless `is_at_cursor`.
---@generic T: { region: sanderling.inline.region.Region }
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

--- Which of a buffer's items a command means: at the cursor, there or else the only one, or all.
---@alias sanderling.inline.region.Which 'cursor'|'only'|'all'

---@generic T: { region: sanderling.inline.region.Region }
---@param list T[] of the current buffer
---@param which sanderling.inline.region.Which
---@return T[]
function M.chosen(list, which)
  return which == 'all' and list or { M.here(list, which == 'cursor') }
end

--- Return the bytes of a row between two positions of getregionpos().
---@param buf integer
---@param pair [integer[], integer[]]
---@return sanderling.inline.region.Span
local function span_of(buf, pair)
  local from, to = unpack(pair)
  local row = from[2] - 1
  local length = #line_at(buf, row)
  local first = from[3] == 0 and length or math.min(from[3] - 1, length) -- 0: the line ends before the block
  local behind = from[3] == 0 and first or math.min(to[3], length)
  return { row, first, row, math.max(first, behind) }
end

--- Refuse a block whose edge is within a tab or a wide character, where it has no byte position.
---@param pair [integer[], integer[]]
local function check_edges(pair)
  local from, to = unpack(pair)
  if (from[3] > 0 and from[4] > 0) or to[4] > 0 then
    local text = 'The block cuts a tab or a wide character in line %d. Select other columns.'
    error(text:format(from[2]), 0)
  end
end

--- Create a region of the characters or columns between two positions of getpos().
---@param buf integer the current one
---@param from integer[]
---@param to integer[]
---@param kind 'characters'|'block'
---@param goes_to_ends? boolean the block extends to the end of each line
---@return sanderling.inline.region.Region
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

--- Return the current positions of its marks.
---@return sanderling.inline.region.Span[]? nil: they are gone
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

--- Return its current rows, from 0.
---@return integer? first nil: its buffer or its text is gone
---@return integer last
function Region:rows()
  local spans = self:spans()
  if not spans then
    return nil, -1
  end
  return spans[1][1], math.min(spans[#spans][3], api.nvim_buf_line_count(self.buf) - 1)
end

---@return boolean
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
---@param span sanderling.inline.region.Span
---@param lines string[]
function Region:replace_lines(span, lines)
  local edit = { row = span[1], old = self.text, new = lines }
  changes.with_modifiers('keepjumps', function()
    changes.apply(self.buf, hunks.narrow({ edit }))
  end)
end

--- Replace columns row by row. A row that ends before the block is padded with spaces if it gets text.
---@private
---@param spans sanderling.inline.region.Span[]
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

--- Return why `lines` cannot replace it, if so.
---@param lines string[]
---@return string?
function Region:refusal(lines)
  if not api.nvim_buf_is_loaded(self.buf) then
    return 'The buffer was closed; nothing was changed.'
  elseif not vim.bo[self.buf].modifiable then
    return "The buffer is locked ('nomodifiable'); nothing was changed."
  elseif not self:is_as_sent() then
    return 'These lines have changed since they were sent, so nothing was replaced. Undo your change, or ask again.'
  elseif self.kind == 'block' and #lines ~= #self.text then
    local text = 'The block has %d lines and the answer %d; nothing was changed.'
    return text:format(#self.text, #lines)
  end
end

--- Replace its text by `lines`, as one undoable change.
---@param lines string[] empty: delete whole lines
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

--- Return a title such as `Ask about a.py:3-5`.
---@param what string
---@param region sanderling.inline.region.Region
---@return string
function M.title(what, region)
  local first, last = region:rows()
  if not first then
    return what
  end
  local name = vim.fs.basename(api.nvim_buf_get_name(region.buf))
  local span = last > first and '%s %s:%d-%d' or '%s %s:%d'
  return span:format(what, name == '' and '[No Name]' or name, first + 1, last + 1)
end

function Region:forget()
  for _, mark in ipairs(api.nvim_buf_is_loaded(self.buf) and self.marks or {}) do
    api.nvim_buf_del_extmark(self.buf, ns, mark)
  end
  self.marks = {}
end

return M
