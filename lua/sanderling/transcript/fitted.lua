--- Tables that are wider than their window, drawn with wrapped cells.
---
--- Neovim wraps a line as if nothing in it were concealed, so the rows of such a table cannot be shortened in place.
--- They are hidden as whole lines, and virtual lines show the table: above the blank line behind it, or around its
--- delimiter row, if that is short. The cursor's own row is shown as written.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')

local GROUND = 'AgentAnswer'
local MIN_CELLS = 4 -- of a column; a table with narrower ones stays as written
local MAX_ROW_BYTES = 2000
local MAX_ROWS = 100

---@class (exact) sanderling.transcript.fitted.Char
---@field text string
---@field width integer
---@field hl? string

---@alias sanderling.transcript.fitted.Cell sanderling.transcript.fitted.Char[]
---@alias sanderling.transcript.fitted.Chunk [string, string|string[]]

--- Return the highlight of each column of a row.
---@param piece sanderling.transcript.paint.Piece
---@param number integer
---@return table<integer, string>
local function highlights_of(piece, number)
  local row, hls = piece:row(number), {}
  local marks = api.nvim_buf_get_extmarks(
    piece.buf,
    piece.ns,
    { row, 0 },
    { row, -1 },
    { details = true }
  )
  for _, mark in ipairs(marks) do
    local details = mark[4]
    if details.hl_group and details.end_row == row then
      for col = mark[3], details.end_col - 1 do
        hls[col] = details.hl_group
      end
    end
  end
  return hls
end

--- Return the visible characters of a cell, without surrounding blanks.
---@param piece sanderling.transcript.paint.Piece
---@param number integer of the row
---@param cell sanderling.transcript.tables.Cell
---@param hls table<integer, string>
---@return sanderling.transcript.fitted.Cell
local function chars_of(piece, number, cell, hls)
  local hidden = {} ---@type table<integer, true>
  for _, range in ipairs(piece.hidden[number] or {}) do
    for col = range[1], range[2] - 1 do
      hidden[col] = true
    end
  end
  local line, chars = piece.lines[number + 1], {}
  for at, text in line:sub(cell.col + 1, cell.end_col):gmatch('()([^\128-\191][\128-\191]*)') do
    local col = cell.col + at - 1
    if not hidden[col] and (#chars > 0 or not text:find('%s')) then
      chars[#chars + 1] = { text = text, width = api.nvim_strwidth(text), hl = hls[col] }
    end
  end
  while #chars > 0 and chars[#chars].text:find('%s') do
    chars[#chars] = nil
  end
  return chars
end

---@param chars sanderling.transcript.fitted.Cell
---@return integer
local function width_of(chars)
  return vim.iter(chars):fold(0, function(sum, char)
    return sum + char.width
  end)
end

---@param chars sanderling.transcript.fitted.Cell
---@return sanderling.transcript.fitted.Cell[]
local function words_in(chars)
  local words = { {} } ---@type sanderling.transcript.fitted.Cell[]
  for _, char in ipairs(chars) do
    if not char.text:find('%s') then
      table.insert(words[#words], char)
    elseif #words[#words] > 0 then
      words[#words + 1] = {}
    end
  end
  return words
end

--- Wrap a cell between words. A word that is wider than the column is broken.
---@param chars sanderling.transcript.fitted.Cell
---@param width integer of the column
---@return sanderling.transcript.fitted.Cell[]
local function wrapped(chars, width)
  local lines, used = { {} }, 0 ---@type sanderling.transcript.fitted.Cell[], integer
  for _, word in ipairs(words_in(chars)) do
    local cells = width_of(word)
    if used > 0 and used + 1 + cells <= width then
      table.insert(lines[#lines], { text = ' ', width = 1 })
      used = used + 1
    elseif used > 0 then
      lines[#lines + 1], used = {}, 0
    end
    for _, char in ipairs(word) do
      if used + char.width > width then
        lines[#lines + 1], used = {}, 0
      end
      table.insert(lines[#lines], char)
      used = used + char.width
    end
  end
  return lines
end

--- Reduce the widest column that is wider than `least` allows, if any.
---@param widths integer[]
---@param least integer[]
---@return boolean
local function narrow(widths, least)
  local widest ---@type integer?
  for i, width in ipairs(widths) do
    if width > least[i] and (not widest or width > widths[widest]) then
      widest = i
    end
  end
  if widest then
    widths[widest] = widths[widest] - 1
  end
  return widest ~= nil
end

---@param widths integer[]
---@return integer
local function sum_of(widths)
  return vim.iter(widths):fold(0, function(sum, width)
    return sum + width
  end)
end

--- Return the widths of the columns in `room` cells, or nil if there is too little room. Words are broken only if it
--- cannot be helped.
---@param rows table<integer, sanderling.transcript.fitted.Cell[]>
---@param room integer
---@return integer[]?
local function widths_in(rows, room)
  local widths, longest, least = {}, {}, {} ---@type integer[], integer[], integer[]
  for _, cells in pairs(rows) do
    for i, chars in ipairs(cells) do
      widths[i] = math.max(widths[i] or 1, width_of(chars))
      least[i] = math.min(widths[i], MIN_CELLS)
      for _, word in ipairs(words_in(chars)) do
        longest[i] = math.max(longest[i] or 1, width_of(word))
      end
    end
  end
  local wanted = room - 3 * #widths - 1
  if sum_of(least) > wanted then
    return nil
  end
  for _ = wanted + 1, sum_of(widths) do
    if not narrow(widths, longest) then
      narrow(widths, least)
    end
  end
  return widths
end

---@param chunks sanderling.transcript.fitted.Chunk[]
---@param chars sanderling.transcript.fitted.Cell
---@param room integer cells that are left
---@param side? 'left'|'right'|'center'
local function add_cell(chunks, chars, room, side)
  local before = side == 'right' and room or side == 'center' and math.floor(room / 2) or 0
  chunks[#chunks + 1] = { (' '):rep(before + 1), GROUND }
  local hl ---@type string?
  for i, char in ipairs(chars) do
    if i > 1 and char.hl == hl then
      chunks[#chunks][1] = chunks[#chunks][1] .. char.text
    else
      chunks[#chunks + 1] = { char.text, char.hl and { GROUND, char.hl } or GROUND }
    end
    hl = char.hl
  end
  chunks[#chunks + 1] = { (' '):rep(room - before + 1), GROUND }
end

--- Return a row as virtual lines.
---@param cells sanderling.transcript.fitted.Cell[]
---@param widths integer[]
---@param sides table<integer, 'left'|'right'|'center'>
---@return sanderling.transcript.fitted.Chunk[][]
local function lines_of(cells, widths, sides)
  local columns, height = {}, 1 ---@type sanderling.transcript.fitted.Cell[][], integer
  for i, width in ipairs(widths) do
    columns[i] = wrapped(cells[i] or {}, width)
    height = math.max(height, #columns[i])
  end
  local bar = { icons.narrow('bar'), 'AgentStatus' }
  local lines = {}
  for n = 1, height do
    local chunks = { bar }
    for i, width in ipairs(widths) do
      local chars = columns[i][n] or {}
      add_cell(chunks, chars, width - width_of(chars), sides[i])
      chunks[#chunks + 1] = bar
    end
    lines[n] = chunks
  end
  return lines
end

---@param widths integer[]
---@return sanderling.transcript.fitted.Chunk[]
local function rule_of(widths)
  local bar, rule = icons.narrow('bar'), icons.narrow('rule')
  local parts = vim.tbl_map(function(width)
    return rule:rep(width + 2)
  end, widths)
  return { { bar .. table.concat(parts, bar) .. bar, 'AgentStatus' } }
end

---@class (exact) sanderling.transcript.fitted.Table
---@field numbers integer[] of its rows, in order
---@field delimiter integer
---@field sides table<integer, 'left'|'right'|'center'>
---@field cells_of fun(number: integer): sanderling.transcript.tables.Cell[]

---@param piece sanderling.transcript.paint.Piece
---@param numbers integer[]
---@return boolean
local function can_be_drawn(piece, numbers)
  return #numbers <= MAX_ROWS
    and vim.iter(numbers):all(function(number)
      local line = piece.lines[number + 1]
      return #line <= MAX_ROW_BYTES and vim.startswith(line, '|')
    end)
end

--- Hide the rows of a table, and show it in `room` cells.
---@param piece sanderling.transcript.paint.Piece
---@param whole sanderling.transcript.fitted.Table
---@param room integer
function M.draw(piece, whole, room)
  local numbers, delimiter = whole.numbers, whole.delimiter
  local behind = numbers[#numbers] + 1
  local is_short = api.nvim_strwidth(piece.lines[delimiter + 1]) <= room
  local has_blank = piece.lines[behind + 1] == ''
  if not can_be_drawn(piece, numbers) or not (has_blank or is_short) then
    return
  end
  local rows = {} ---@type table<integer, sanderling.transcript.fitted.Cell[]>
  for _, number in ipairs(numbers) do
    if number ~= delimiter then
      local hls = highlights_of(piece, number)
      rows[number] = vim.tbl_map(function(cell)
        return chars_of(piece, number, cell, hls)
      end, whole.cells_of(number))
    end
  end
  local widths = widths_in(rows, room)
  if not widths then
    return
  end
  local head, body = {}, {} ---@type sanderling.transcript.fitted.Chunk[][], sanderling.transcript.fitted.Chunk[][]
  for _, number in ipairs(numbers) do
    if rows[number] then
      local lines = lines_of(rows[number], widths, whole.sides)
      vim.list_extend(number < delimiter and head or body, lines)
    end
    if number ~= delimiter or has_blank then
      piece:mark(number, 0, number, 0, { conceal_lines = '' })
    end
  end
  if has_blank then
    head[#head + 1] = rule_of(widths)
    vim.list_extend(head, body)
    piece:mark(behind, 0, behind, 0, { virt_lines = head, virt_lines_above = true })
  else
    piece:mark(delimiter, 0, delimiter, 0, { virt_lines = head, virt_lines_above = true })
    piece:mark(delimiter, 0, delimiter, 0, { virt_lines = body })
    local rule = { virt_text = rule_of(widths), virt_text_pos = 'overlay' }
    piece:mark(delimiter, 0, delimiter, 0, rule)
  end
end

return M
