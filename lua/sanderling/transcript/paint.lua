--- The marks of a piece of Markdown: highlights, concealed characters, table columns, code highlighting.
---
--- Only pure formatting is concealed. Brackets and underscores stay: to Markdown, `a[0]` and `__init__` in prose are a
--- link and bold text, but the user must see what the model wrote.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local lazy = require('sanderling.ui.lazy')
local parsing = require('sanderling.access.parsing')

local code = lazy('sanderling.transcript.code')
local tables = lazy('sanderling.transcript.tables')
local time = require('sanderling.ui.time')
local words = require('sanderling.ui.words')

require('sanderling.ui.colors')

local CHECKED = 16 -- captures between two checks of the time

---@class (exact) sanderling.transcript.paint.Piece of a buffer
---@field buf integer
---@field ns integer
---@field block sanderling.transcript.markdown.Block its rows may move between two slices
---@field lead integer number of `lines` before the block: the one that opened its fence
---@field is_spent fun(): boolean the slice is over
---@field lines string[]
---@field text string all lines as one string
---@field is_raw boolean nothing is concealed
---@field count integer of the marks
---@field is_wrapped boolean it contains code that is wider than the window
---@field hidden table<integer, integer[][]> by row: first column, end column, number of cells saved
---@field rows table<integer, sanderling.transcript.tables.Row> of tables, by row

local Piece = {}
Piece.__index = Piece

--- Mark a range: row, column, end row, end column (exclusive). Rows count in the piece.
---@param row integer
---@param col integer
---@param end_row integer
---@param end_col integer
---@param opts vim.api.keyset.set_extmark
function Piece:mark(row, col, end_row, end_col, opts)
  if end_row < self.lead then
    return -- the line that opened the fence, which belongs to the block before
  elseif row < self.lead then
    row, col = self.lead, 0
  end
  if end_row >= #self.lines then
    end_row, end_col = #self.lines - 1, #self.lines[#self.lines]
  end
  opts.end_row = self:row(end_row)
  opts.end_col = math.min(end_col, #self.lines[end_row + 1])
  opts.strict = false
  api.nvim_buf_set_extmark(self.buf, self.ns, self:row(row), col, opts)
  self.count = self.count + 1
end

---@param number integer of one of `lines`, from 0
---@return integer
function Piece:row(number)
  return number + self.block.first - self.lead
end

--- Wait for the next slice if this one is over.
function Piece:rest()
  if self.is_spent() then
    coroutine.yield()
  end
end

---@type table<string, vim.treesitter.Query|false>
local queries = {}

---@param lang string
local function highlights_query(lang)
  if queries[lang] == nil then
    local ok, query = pcall(vim.treesitter.query.get, lang, 'highlights')
    queries[lang] = ok and query or false
  end
  return queries[lang]
end

local LANGUAGES = { 'markdown', 'markdown_inline' }

--- Load a parser and its queries, which takes longer than painting with them.
---@param number integer from 1
---@return boolean is_last
function M.preload(number)
  local lang = LANGUAGES[number]
  if queries[lang] == nil then
    highlights_query(lang)
    pcall(vim.treesitter.query.get, lang, 'injections')
  end
  return number == #LANGUAGES
end

local is_plain = { spell = true, nospell = true, conceal = true, none = true }

--- Return whether `node` is pure formatting.
---@param node TSNode
---@param text string
---@return boolean
local function is_dressing(node, text)
  local type = node:type()
  local parent = node:parent()
  if type == 'emphasis_delimiter' then
    return vim.treesitter.get_node_text(node, text) ~= '_'
  end
  return type == 'code_span_delimiter' or parent ~= nil and parent:type() == 'inline_link'
end

---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
local function conceal(piece, node)
  local row, col, end_row, end_col = node:range()
  if row == end_row then
    piece.hidden[row] = piece.hidden[row] or {}
    local cells = api.nvim_strwidth(piece.lines[row + 1]:sub(col + 1, end_col))
    table.insert(piece.hidden[row], { col, end_col, cells })
    piece:mark(row, col, row, end_col, { conceal = '' })
  end
end

--- Return whether the highlight of `node` is unwanted: a paragraph of a nested list that looks like code without its
--- list, or a code block with its own highlighting.
---@param node TSNode
---@return boolean
local function is_ground(node)
  local type = node:type()
  local info = type == 'fenced_code_block' and node:named_child(1)
  return type == 'indented_code_block' or info and info:type() == 'info_string' or false
end

--- Give the columns before a wrapped line of code its background, which Neovim leaves out of 'breakindent'.
---@param piece sanderling.transcript.paint.Piece
---@param row integer
---@param line string
local function draw_indent(piece, row, line)
  local indent = line:match('^%s+')
  if indent and api.nvim_strwidth(line) > words.width_of(piece.buf) then
    piece.is_wrapped = true
    piece:mark(row, 0, row, 0, {
      virt_text = { { (' '):rep(api.nvim_strwidth(indent)), 'AgentCode' } },
      virt_text_win_col = 0,
      virt_text_repeat_linebreak = true,
    })
  end
end

--- Give code its background, which needs no parser.
---@param piece sanderling.transcript.paint.Piece
local function draw_grounds(piece)
  if piece.is_raw then
    return
  end
  local fence, first ---@type string?, integer?
  for i, line in ipairs(piece.lines) do
    fence = words.fence_behind(line, fence)
    first = first or fence and i
    if fence then
      draw_indent(piece, i - 1, line)
    end
    if first and (not fence or i == #piece.lines) then
      piece:mark(first - 1, 0, i - 1, #line, { line_hl_group = 'AgentCode', priority = 90 })
      first = nil
    end
  end
end

--- Conceal the signs before a heading, whose level the highlight shows.
---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
local function draw_heading(piece, node)
  local marker = node:child(0)
  local level = marker and tonumber(marker:type():match('^atx_h(%d)_marker$'))
  if not (marker and level) then
    return
  end
  local row, col, _, end_col = marker:range()
  local line = piece.lines[row + 1]
  local behind = end_col + #line:match('^%s*', end_col + 1)
  if behind < #line then
    piece:mark(row, col, row, behind, { conceal = '' })
    local hl = 'AgentHeading' .. math.min(level, 3)
    piece:mark(row, behind, row, #line, { hl_group = hl, priority = 105 })
  end
end

--- Replace the signs before the lines of a quote by bars, which continue where a line wraps.
---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
local function draw_bars(piece, node)
  local row, col, _, end_col = node:range()
  local line, bar = piece.lines[row + 1], icons.narrow('quote')
  for at = col, end_col - 1 do
    if line:byte(at + 1) == 62 then -- '>'
      piece:mark(row, at, row, at + 1, { conceal = bar, hl_group = 'AgentQuote', priority = 110 })
      piece:mark(row, at, row, at, {
        virt_text = { { bar, 'AgentQuote' } },
        virt_text_win_col = api.nvim_strwidth(line:sub(1, at)),
        virt_text_repeat_linebreak = true,
      })
    end
  end
end

--- Additional drawing, by node type.
---@type table<string, fun(piece: sanderling.transcript.paint.Piece, node: TSNode)>
local draw = {
  fenced_code_block_delimiter = conceal,
  language = function(piece, node)
    local row, col, _, end_col = node:range()
    piece:mark(row, col, row, end_col, { hl_group = 'AgentCodeLabel', priority = 110 })
    code.paint(piece, node)
  end,
  atx_heading = draw_heading,
  block_quote_marker = draw_bars,
  block_continuation = draw_bars,
  ['|'] = function(piece, node)
    tables.add_pipe(piece, node)
  end,
  pipe_table_delimiter_cell = function(piece, node)
    tables.add_delimiter(piece, node)
  end,
}

--- Conceal a Markdown node, or draw something in its place.
---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
---@param is_concealed boolean
local function dress(piece, node, is_concealed)
  if is_concealed and is_dressing(node, piece.text) then
    conceal(piece, node)
  elseif draw[node:type()] then
    draw[node:type()](piece, node)
  end
end

---@param piece sanderling.transcript.paint.Piece
---@param tree TSTree
---@param lang string
local function paint_tree(piece, tree, lang)
  local query = highlights_query(lang)
  if not query then
    return
  end
  local is_dressed, seen = not piece.is_raw and vim.startswith(lang, 'markdown'), 0
  for id, node, metadata in query:iter_captures(tree:root(), piece.text) do
    seen = seen + 1
    if seen % CHECKED == 0 then
      piece:rest()
    end
    local name = query.captures[id]
    if name:byte() ~= 95 and not is_plain[name] and not is_ground(node) then -- '_'
      local row, col, end_row, end_col = node:range()
      local hl = '@' .. name .. '.' .. lang
      piece:mark(row, col, end_row, end_col, { hl_group = hl, priority = 100 })
    end
    if is_dressed then
      dress(piece, node, (metadata.conceal or (metadata[id] or {}).conceal) ~= nil)
    end
  end
end

---@param piece sanderling.transcript.paint.Piece
local function paint(piece)
  local ok, parser = pcall(vim.treesitter.get_string_parser, piece.text, 'markdown')
  if not ok then
    return
  end
  parser:parse(true)
  piece:rest()
  parser:for_each_tree(function(tree, language_tree)
    paint_tree(piece, tree, language_tree:lang())
  end)
  if next(piece.rows) then
    piece:rest()
    tables.align(piece)
  end
end

---@class (exact) sanderling.transcript.paint.Painting the marks of a block, set slice by slice
---@field piece sanderling.transcript.paint.Piece
---@field private thread? thread nil when all marks are set
local Painting = {}
Painting.__index = Painting

--- Begin to set the marks of `block`. Its code has its background at once. What is not preloaded yet is loaded here, and not
--- in the time of the block, which would stay plain.
---@param buf integer
---@param ns integer
---@param block sanderling.transcript.markdown.Block
---@return sanderling.transcript.paint.Painting
function M.begin(buf, ns, block)
  local lines = api.nvim_buf_get_lines(buf, block.first, block.last, false)
  local lead = block.fence and 1 or 0
  if block.fence then
    table.insert(lines, 1, block.fence)
  end
  ---@type sanderling.transcript.paint.Piece
  local piece = setmetatable({
    buf = buf,
    ns = ns,
    block = block,
    lead = lead,
    is_spent = function()
      return true
    end,
    lines = lines,
    text = table.concat(lines, '\n') .. '\n',
    is_raw = block.is_raw or false,
    count = 0,
    is_wrapped = false,
    hidden = {},
    rows = {},
  }, Piece)
  draw_grounds(piece)
  local is_plain_text = block.is_slow or parsing.is_too_much(lines)
  local thread = not is_plain_text and coroutine.create(paint) or nil
  if thread then
    vim.iter(ipairs(LANGUAGES)):each(M.preload)
  end
  return setmetatable({ piece = piece, thread = thread }, Painting)
end

--- Set marks for about `ms`. A parse cannot be interrupted.
---@param ms number
---@return boolean is_done
function Painting:go_on(ms)
  if self.thread then
    self.piece.is_spent = time.budget(ms)
    local ok, err = coroutine.resume(self.thread, self.piece)
    if not ok then
      error(debug.traceback(self.thread, err), 0)
    elseif coroutine.status(self.thread) == 'dead' then
      self.thread = nil
    end
  end
  return self:is_done()
end

--- Leave only the background of the code.
function Painting:give_up()
  local piece = self.piece
  api.nvim_buf_clear_namespace(piece.buf, piece.ns, piece.block.first, piece.block.last)
  self.thread, piece.count, piece.rows = nil, 0, {}
  draw_grounds(piece)
end

---@return boolean
function Painting:is_done()
  return not self.thread
end

return M
