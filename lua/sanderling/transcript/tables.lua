--- Tables with aligned columns. The padding is virtual, so the text remains what the model wrote. A table that does not
--- fit into the window is drawn with wrapped cells.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local lazy = require('sanderling.ui.lazy')
local words = require('sanderling.ui.words')

local fitted = lazy('sanderling.transcript.fitted')

local MAX_PIPES = 100 -- per row; a row with more would not fit into a window

---@class (exact) sanderling.transcript.tables.Row
---@field id string of the table
---@field pipes integer[] columns
---@field sides table<integer, 'left'|'right'|'center'> alignment of the columns, in the row below the header
---@field is_delimiter boolean

---@param piece sanderling.transcript.paint.Piece
---@param node TSNode within a row of a table
---@return sanderling.transcript.tables.Row?
local function row_of(piece, node)
  local parent = assert(node:parent())
  local whole = parent:parent()
  if not whole or whole:type() ~= 'pipe_table' then
    return nil
  end
  local number = node:range()
  piece.rows[number] = piece.rows[number]
    or {
      id = whole:id(),
      pipes = {},
      sides = {},
      is_delimiter = parent:type() == 'pipe_table_delimiter_row',
    }
  return piece.rows[number]
end

---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
function M.add_pipe(piece, node)
  local row = row_of(piece, node)
  if row then
    local _, col = node:range()
    row.pipes[#row.pipes + 1] = col
  end
end

---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
function M.add_delimiter(piece, node)
  local row = row_of(piece, node)
  if row then
    local text = words.trimmed(vim.treesitter.get_node_text(node, piece.text))
    local is_right = vim.endswith(text, ':')
    local side = is_right and (vim.startswith(text, ':') and 'center' or 'right') or 'left'
    row.sides[#row.sides + 1] = side
  end
end

---@class (exact) sanderling.transcript.tables.Cell
---@field col integer
---@field end_col integer
---@field width integer as displayed

--- Return the cells between the pipes of a row.
---@param piece sanderling.transcript.paint.Piece
---@param number integer of the row
---@return sanderling.transcript.tables.Cell[]
local function cells_of(piece, number)
  local line, pipes = piece.lines[number + 1], piece.rows[number].pipes
  table.sort(pipes)
  local cells = {}
  local col = line:find('%S') == pipes[1] + 1 and pipes[1] + 1 or 0
  for _, pipe in ipairs(vim.list_extend(vim.list_slice(pipes), { #line })) do
    if
      pipe >= col and words.trimmed(line:sub(col + 1, pipe)) ~= '' or pipe < #line and pipe >= col
    then
      local width = api.nvim_strwidth(line:sub(col + 1, pipe))
      for _, hidden in ipairs(piece.hidden[number] or {}) do
        if hidden[1] >= col and hidden[2] <= pipe then
          width = width - hidden[3]
        end
      end
      cells[#cells + 1] = { col = col, end_col = pipe, width = width }
    end
    col = pipe + 1
  end
  return cells
end

---@param piece sanderling.transcript.paint.Piece
---@param number integer of the row
---@param col integer
---@param cells integer
local function pad(piece, number, col, cells)
  if cells > 0 then
    local text = { { (' '):rep(cells) } }
    piece:mark(number, col, number, col, { virt_text = text, virt_text_pos = 'inline' })
  end
end

--- Draw a rule over the row below the header.
---@param piece sanderling.transcript.paint.Piece
---@param number integer
---@param widths integer[]
local function draw_rule(piece, number, widths)
  local bar, rule = icons.narrow('bar'), icons.narrow('rule')
  local parts = vim.tbl_map(function(width)
    return rule:rep(width)
  end, widths)
  local text = bar .. table.concat(parts, bar) .. bar
  local col = #piece.lines[number + 1]:match('^%s*')
  piece:mark(number, col, number, col, {
    virt_text = { { text, 'AgentStatus' } },
    virt_text_pos = 'overlay',
  })
end

---@param piece sanderling.transcript.paint.Piece
---@param number integer
---@param widths integer[] of the columns
---@param sides table<integer, 'left'|'right'|'center'>
local function align_row(piece, number, widths, sides)
  for i, cell in ipairs(cells_of(piece, number)) do
    local room = widths[i] - cell.width
    local before = sides[i] == 'right' and room
      or sides[i] == 'center' and math.floor(room / 2)
      or 0
    pad(piece, number, cell.col, before)
    pad(piece, number, cell.end_col, room - before)
  end
  for _, pipe in ipairs(piece.rows[number].pipes) do
    local opts = { conceal = icons.narrow('bar'), hl_group = 'AgentStatus', priority = 110 }
    piece:mark(number, pipe, number, pipe + 1, opts)
  end
end

---@param piece sanderling.transcript.paint.Piece
---@param numbers integer[] of the rows
---@param delimiter integer
---@param sides table<integer, 'left'|'right'|'center'>
---@param room integer
local function draw_fitted(piece, numbers, delimiter, sides, room)
  fitted.draw(piece, {
    numbers = numbers,
    delimiter = delimiter,
    sides = sides,
    cells_of = function(number)
      return cells_of(piece, number)
    end,
  }, room)
end

--- Align one table, or wrap its cells if it is too wide.
---@param piece sanderling.transcript.paint.Piece
---@param numbers integer[] of its rows
local function align(piece, numbers)
  for _, number in ipairs(numbers) do
    if #piece.rows[number].pipes > MAX_PIPES then
      return
    end
  end
  local widths, sides, delimiter = {}, {}, nil ---@type integer[], table, integer?
  for _, number in ipairs(numbers) do
    if piece.rows[number].is_delimiter then
      sides, delimiter = piece.rows[number].sides, number
    else
      for i, cell in ipairs(cells_of(piece, number)) do
        widths[i] = math.max(widths[i] or 0, cell.width)
      end
    end
  end
  local room = words.width_of(piece.buf)
  for _, number in ipairs(numbers) do
    local width = api.nvim_strwidth(piece.lines[number + 1]) -- Neovim includes concealed text when it wraps lines
    for i, cell in ipairs(cells_of(piece, number)) do
      width = width + (widths[i] or cell.width) - cell.width
    end
    if width > room and number ~= delimiter then
      if delimiter then
        draw_fitted(piece, numbers, delimiter, sides, room)
      end
      return
    end
  end
  for _, number in ipairs(numbers) do
    if number == delimiter then
      draw_rule(piece, number, widths)
    else
      align_row(piece, number, widths, sides)
    end
  end
end

---@param piece sanderling.transcript.paint.Piece
function M.align(piece)
  local by_id = {} ---@type table<string, integer[]>
  for number, row in vim.spairs(piece.rows) do
    by_id[row.id] = by_id[row.id] or {}
    table.insert(by_id[row.id], number)
  end
  for _, numbers in pairs(by_id) do
    align(piece, numbers)
  end
end

return M
