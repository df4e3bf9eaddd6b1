--- Markdown as virtual lines, with the same highlighting and concealing as in a transcript.
---
--- The text is painted in a hidden buffer, whose marks are converted to chunks. As in a transcript it is split at blank
--- lines, and while an answer grows only its last block is painted again.
local M = {}

local api = vim.api
local paint = require('sanderling.transcript.paint')
local parsing = require('sanderling.access.parsing')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local GROUND = 'AgentAnswer'
local MAX_BLOCK_LINES = 40
local PAINT_MS = 25 -- of a block; one that takes longer is not highlighted
local MAX_SPANS = 500 -- per line, because each part of a line checks all of them; a line with more is not highlighted

local ns = api.nvim_create_namespace('sanderling_virtual')

---@alias sanderling.transcript.virtual.Chunk [string, string[]] text and highlight groups, the last one has priority
---@alias sanderling.transcript.virtual.Line sanderling.transcript.virtual.Chunk[]
---@alias sanderling.transcript.virtual.Known table<string, sanderling.transcript.virtual.Line[]> by the text of a block

---@type integer?
local hidden

---@return integer buf
local function buffer()
  if not (hidden and api.nvim_buf_is_loaded(hidden)) then
    scratch.quietly(function()
      hidden = api.nvim_create_buf(false, true)
    end)
  end
  return assert(hidden)
end

-- marks to chunks -----------------------------------------------------------------------------------------------------

---@class (exact) sanderling.transcript.virtual.Span of a row
---@field from integer column
---@field to integer end column
---@field details table of the mark

--- Return the marks of each row, sorted by priority.
---@param buf integer
---@param lines string[]
---@return sanderling.transcript.virtual.Span[][]
local function spans_of(buf, lines)
  local marks = api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true })
  table.sort(marks, function(a, b)
    local above, below = a[4].priority or 0, b[4].priority or 0
    return above < below or above == below and a[1] < b[1]
  end)
  local rows = vim.tbl_map(function()
    return {}
  end, lines)
  for _, mark in ipairs(marks) do
    local _, row, col, details = unpack(mark)
    local end_row = details.end_row or row
    for at = row, math.min(end_row, #lines - 1) do
      table.insert(rows[at + 1], {
        from = at == row and col or 0,
        to = at == end_row and (details.end_col or col) or #lines[at + 1],
        details = details,
      })
    end
  end
  return rows
end

--- Return a part of a line in which no mark starts or ends. Concealed text is left out or replaced.
---@param text string
---@param from integer
---@param to integer
---@param spans sanderling.transcript.virtual.Span[]
---@return sanderling.transcript.virtual.Chunk?
local function chunk_of(text, from, to, spans)
  local groups = { GROUND }
  for _, span in ipairs(spans) do
    local details = span.details
    if span.from <= from and span.to >= to then
      text = details.conceal or text
      groups[#groups + 1] = details.hl_group
    end
  end
  return text ~= '' and { text, groups } or nil
end

--- Return a line as displayed.
---@param line string
---@param spans sanderling.transcript.virtual.Span[]
---@return sanderling.transcript.virtual.Line
local function chunks_of(line, spans)
  local ends, put_in = { [0] = true, [#line] = true }, {} ---@type table<integer, true>, table
  for _, span in ipairs(spans) do
    ends[span.from], ends[math.min(span.to, #line)] = true, true
    if span.details.virt_text and not span.details.virt_text_repeat_linebreak then
      put_in[span.from] = span.details
    end
  end
  local chunks, at = {}, 0 ---@type sanderling.transcript.virtual.Line, integer
  for col in vim.spairs(ends) do
    chunks[#chunks + 1] = col > at and chunk_of(line:sub(at + 1, col), at, col, spans) or nil
    for _, chunk in ipairs(put_in[col] and put_in[col].virt_text or {}) do
      chunks[#chunks + 1] = { chunk[1], { GROUND, chunk[2] } }
    end
    if put_in[col] and put_in[col].virt_text_pos == 'overlay' then
      break -- a rule covers the rest of the line
    end
    at = col
  end
  return chunks
end

---@param line sanderling.transcript.virtual.Line
---@return string
local function text_of(line)
  return table.concat(vim.tbl_map(function(chunk)
    return chunk[1]
  end, line))
end

-- wrapping ------------------------------------------------------------------------------------------------------------

--- Return the columns of `line` from `from` to `to`.
---@param line sanderling.transcript.virtual.Line
---@param from integer
---@param to integer
---@return sanderling.transcript.virtual.Line
local function slice(line, from, to)
  local part, at = {}, 0
  for _, chunk in ipairs(line) do
    local text = chunk[1]:sub(math.max(from - at, 0) + 1, math.max(to - at, 0))
    if text ~= '' then
      part[#part + 1] = { text, chunk[2] }
    end
    at = at + #chunk[1]
  end
  return part
end

--- Wrap `line` between words. A list item continues below its first word.
---@param line sanderling.transcript.virtual.Line
---@param cells integer
---@return sanderling.transcript.virtual.Line[]
local function wrapped(line, cells)
  local text = text_of(line)
  if api.nvim_strwidth(text) <= cells then
    return { line }
  end
  local indent = text:match('^%s*')
  local mark = text:match('^%s*[-*+]%s+') or text:match('^%s*%d+[.)]%s+') or indent
  local parts, from, to = {}, 0, 0
  local room = cells
  local function break_here()
    local part = slice(line, from, to)
    if #parts > 0 then
      table.insert(part, 1, { (' '):rep(#mark), { GROUND } })
    end
    parts[#parts + 1] = part
    room = math.max(10, cells - #mark)
  end
  for first, behind in text:gmatch('()%S+()') do
    if to > #indent and api.nvim_strwidth(text:sub(from + 1, behind - 1)) > room then
      break_here()
      from = first - 1
    end
    to = behind - 1
  end
  break_here()
  return parts
end

-- blocks --------------------------------------------------------------------------------------------------------------

---@class (exact) sanderling.transcript.virtual.Block
---@field lines string[]
---@field fence? string the line that opened the code fence the block begins in
---@field is_code table<integer, boolean> by line
---@field bytes integer

---@param text string
---@return sanderling.transcript.virtual.Block[]
local function blocks_of(text)
  local blocks, fence = {}, nil ---@type sanderling.transcript.virtual.Block[], string?
  local block
  for _, line in ipairs(vim.split(text, '\n', { plain = true })) do
    if not block then
      block = { lines = {}, is_code = {}, fence = fence, bytes = 0 }
      blocks[#blocks + 1] = block
    end
    local before = fence
    fence = words.fence_behind(line, before)
    block.lines[#block.lines + 1] = line
    block.is_code[#block.lines] = (before or fence) ~= nil
    block.bytes = block.bytes + #line + 1
    local is_full = #block.lines == MAX_BLOCK_LINES or block.bytes > parsing.MAX_BYTES / 2
    if line == '' and not fence or is_full then
      block = nil
    end
  end
  return blocks
end

---@param block sanderling.transcript.virtual.Block
---@param is_raw? boolean
---@return sanderling.transcript.virtual.Line[]
---@return boolean has_table
local function painted(block, is_raw)
  local buf, lines = buffer(), block.lines
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  local whole = { first = 0, last = #lines, fence = block.fence, is_raw = is_raw }
  local painting = paint.begin(buf, ns, whole)
  if not painting:go_on(PAINT_MS) then
    painting:give_up()
  end
  local shown = {}
  for i, spans in ipairs(spans_of(buf, lines)) do
    shown[i] = chunks_of(lines[i], #spans <= MAX_SPANS and spans or {})
  end
  return shown, next(painting.piece.rows) ~= nil
end

---@param block sanderling.transcript.virtual.Block
---@param cells integer
---@return sanderling.transcript.virtual.Line[]
local function drawn(block, cells)
  local shown, has_table = painted(block)
  local is_too_wide = has_table
    and vim.iter(shown):any(function(line)
      return api.nvim_strwidth(text_of(line)) > cells
    end)
  if is_too_wide then
    shown = painted(block, true)
  end
  local lines = {}
  for i, line in ipairs(shown) do
    vim.list_extend(lines, block.is_code[i] and { line } or wrapped(line, cells))
  end
  return lines
end

--- Return `text` in lines of at most `cells` cells, except code lines, which are not wrapped.
---@param text string
---@param cells integer
---@param known? sanderling.transcript.virtual.Known the blocks painted before, for the same `cells`
---@return sanderling.transcript.virtual.Line[]
---@return sanderling.transcript.virtual.Known
function M.lines(text, cells, known)
  local lines, painted_now = {}, {}
  for _, block in ipairs(blocks_of(text)) do
    local key = ('%d\0%s\0%s'):format(cells, block.fence or '', table.concat(block.lines, '\n'))
    painted_now[key] = known and known[key] or drawn(block, cells)
    vim.list_extend(lines, painted_now[key])
  end
  return lines, painted_now
end

return M
