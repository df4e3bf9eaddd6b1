--- Symbol names as models write them (`Class/method`, `a::T`, `self.name`), and how to find them in lines and trees.
local M = {}

local api = vim.api
local parsing = require('sanderling.access.parsing')

local NAME = '[%w_$@!?~\128-\255-]+' -- `-` occurs in names of shells, Lisp and style sheets
local WORD = '[%w_$\128-\255]'
local MAX_PARSED_BYTES = 256 * 1024 -- of a file that is parsed for one line
local MAX_OCCURRENCES = 50

--- Return the parts of a symbol's name, outermost first, without what servers add to names.
---@param symbol string
---@return string[]
function M.parts(symbol)
  local bare = symbol:gsub('%->', '.'):gsub('([%w_])%b()', '%1'):gsub('%b<>', ''):gsub('%b[]', '')
  local parts = {}
  for part in (bare:find(NAME) and bare or symbol):gmatch(NAME) do
    parts[#parts + 1] = part
  end
  return parts
end

---@param symbol string
---@return string
function M.last(symbol)
  local parts = M.parts(symbol)
  return parts[#parts] or symbol
end

--- Are the parts contained, in order, in a symbol's full name, with the same last part?
---@param parts string[]
---@param chain string[]
---@return boolean
function M.fits(parts, chain)
  if #parts == 0 or parts[#parts] ~= chain[#chain] then
    return false
  end
  local at = 1
  for i = 1, #chain - 1 do
    if at < #parts and chain[i] == parts[at] then
      at = at + 1
    end
  end
  return at == #parts
end

---@param line string
---@param name string
---@param first integer bytes, from 0
---@param last integer
---@return integer[] cols from 0
local function words(line, name, first, last)
  local cols, at = {}, first + 1
  while #cols < MAX_OCCURRENCES do
    local from, to = line:find(name, at, true)
    if not from or to > last then
      return cols
    end
    local is_word = not (line:sub(from - 1, from - 1):find(WORD) and name:find('^' .. WORD))
      and not (line:sub(to + 1, to + 1):find(WORD) and name:find(WORD .. '$'))
    if is_word then
      cols[#cols + 1] = from - 1
    end
    at = from + 1
  end
  return cols
end

--- Return where a symbol occurs in a line: the last part of its literal text if that occurs, else all occurrences of its last part.
---@param line string
---@param symbol string
---@return integer[] cols from 0
function M.in_line(line, symbol)
  local name = M.last(symbol)
  if symbol ~= name then
    local from, to = line:find(symbol, 1, true)
    local cols = from and words(line, name, from - 1, to) or {}
    if #cols > 0 then
      return { cols[#cols] }
    end
  end
  return words(line, name, 0, #line)
end

--- Return a parser for the buffer, nil without a grammar, or for text that could freeze it.
---@param buf integer
---@return vim.treesitter.LanguageTree?
function M.parser_of(buf)
  if api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf)) > MAX_PARSED_BYTES then
    return nil
  end
  local ok, parser = pcall(vim.treesitter.get_parser, buf, nil, { error = false })
  if not ok or not parser then
    return nil
  end
  local lines = api.nvim_buf_get_lines(buf, 0, -1, true)
  local is_too_much = parser:lang() == 'markdown' and parsing.has_too_much
    or parsing.nests_too_deeply
  return not is_too_much(lines) and parser or nil
end

--- Return the places where the grammar has a node for exactly the name, not for a comment or string; all, without a grammar.
---@param buf integer
---@param row integer
---@param cols integer[]
---@param name string
---@return integer[] cols
function M.of_grammar(buf, row, cols, name)
  local parser = #cols > 0 and M.parser_of(buf)
  if not parser or not pcall(parser.parse, parser) then
    return cols
  end
  local found = vim.tbl_filter(function(col)
    local node = parser:named_node_for_range({ row, col, row, col + #name })
    if not node then
      return true
    end
    local kind = node:type()
    if kind:find('string') or kind:find('comment') then
      return false
    end
    local first_row, first_col, last_row, last_col = node:range()
    return first_row == row and first_col == col and last_row == row and last_col == col + #name
  end, cols)
  return found
end

---@class (exact) sanderling.code.Symbol
---@field name string
---@field kind string
---@field depth integer
---@field chain string[] the parts of its full name
---@field row integer of its name
---@field character integer of its name, as the server counts
---@field last_row integer

---@param kind integer
---@return string
function M.kind(kind)
  return (vim.lsp.protocol.SymbolKind[kind] or 'Symbol'):lower()
end

---@param a table
---@param b table
---@return boolean
local function comes_before(a, b)
  local start_a = (a.range or a.location.range).start
  local start_b = (b.range or b.location.range).start
  if start_a.line ~= start_b.line then
    return start_a.line < start_b.line
  end
  return start_a.character < start_b.character
end

--- Flatten the symbols of a document, in order.
---@param result table[] DocumentSymbol[] or SymbolInformation[]
---@param outer? sanderling.code.Symbol
---@param found? sanderling.code.Symbol[]
---@return sanderling.code.Symbol[]
function M.flat(result, outer, found)
  found = found or {}
  local sorted = vim.list_slice(result)
  table.sort(sorted, comes_before)
  for _, each in ipairs(sorted) do
    local range = each.range or each.location.range
    local start = (each.selectionRange or range).start
    local above = outer and outer.chain or M.parts(each.containerName or '')
    local symbol = {
      name = each.name,
      kind = M.kind(each.kind),
      depth = outer and outer.depth + 1 or 0,
      chain = vim.list_extend(vim.list_slice(above), M.parts(each.name)),
      row = start.line,
      character = start.character,
      last_row = range['end'].line,
    }
    found[#found + 1] = symbol
    M.flat(each.children or {}, symbol, found)
  end
  return found
end

return M
