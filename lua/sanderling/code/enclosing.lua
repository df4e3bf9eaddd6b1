--- The function or class around a line: by the buffer's grammar, else by the symbols of a language server.
local M = {}

local api = vim.api
local names = require('sanderling.code.names')

local MAX_LINES = 400 -- a longer function is not sent for one of its lines
local SYMBOL_MS = 500 -- per server
local METHOD = 'textDocument/documentSymbol'
local FUNCTIONS = { [6] = true, [9] = true, [12] = true } -- SymbolKind: method, constructor, function
local CLASSES = { [5] = true, [10] = true, [11] = true, [23] = true } -- class, enum, interface, struct
local FUNCTION = { 'function', 'method', 'constructor', '^subroutine', '^procedure', '^fun_' }
local CLASS =
  { '^class', '^interface', '^struct', '^impl_item', '^trait', '^enum', '^module$', '^type_decl' }
local NO_DECLARATION =
  { 'call', 'invocation', 'type$', 'signature', 'parameter', 'reference', 'body', 'name' }
local ASSIGNED = { 'declaration', 'declarator', 'assignment', 'definition', 'field', 'pair' }

---@param kind string
---@param patterns string[]
---@return boolean
local function is_one_of(kind, patterns)
  return vim.iter(patterns):any(function(pattern)
    return kind:find(pattern) ~= nil
  end)
end

--- Return the statement that gives a nameless function its name, if there is one.
---@param node TSNode
---@return TSNode?
local function naming(node)
  local found
  local above = node:parent()
  for _ = 1, 4 do
    if not above or not is_one_of(above:type(), vim.list_extend({ '_list$' }, ASSIGNED)) then
      break
    end
    found = is_one_of(above:type(), ASSIGNED) and above or found
    above = above:parent()
  end
  return found
end

--- Return the declaration that `node` begins, if it is that of a function, or of a class whose first line is `row`.
---@param node TSNode
---@param row integer
---@return TSNode?
function M.declaration(node, row)
  local kind = node:type()
  local above = node:parent()
  if above and above:type():find('^decorated') then
    return M.declaration(above, row)
  elseif kind:find('^decorated') then
    local inner = node:field('definition')[1]
    local is_class = inner and is_one_of(inner:type(), CLASS)
    return (not is_class or row <= inner:start()) and node or nil
  elseif is_one_of(kind, NO_DECLARATION) then
    return nil
  elseif is_one_of(kind, CLASS) then
    return node:start() == row and node or nil
  elseif not is_one_of(kind, FUNCTION) then
    return nil
  end
  local has_name = node:field('name')[1] or node:field('declarator')[1]
  return has_name and node or naming(node)
end

---@param buf integer
---@param row integer
---@return integer? first row
---@return integer? last
local function by_grammar(buf, row)
  local parser = names.parser_of(buf)
  if not parser or not pcall(parser.parse, parser) then
    return nil
  end
  local line = api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ''
  local col = #line:match('^%s*')
  local node = parser:named_node_for_range({ row, col, row, col })
  while node do
    local found = node:parent() and M.declaration(node, row)
    if found then
      local first, _, last, last_col = found:range()
      return first, last_col == 0 and last > first and last - 1 or last
    end
    node = node:parent()
  end
end

--- Return the smallest function that contains the row, or the class that begins there.
---@param symbols table[]
---@param row integer
---@param best? [integer, integer]
---@return [integer, integer]? rows
local function smallest(symbols, row, best)
  for _, symbol in ipairs(symbols) do
    local range = symbol.range or symbol.location and symbol.location.range
    local first, last = range and range.start.line, range and range['end'].line
    local is_meant = FUNCTIONS[symbol.kind]
      or CLASSES[symbol.kind]
        and row == (symbol.selectionRange and symbol.selectionRange.start.line or first)
    if range and first <= row and row <= last then
      if is_meant and (not best or last - first <= best[2] - best[1]) then
        best = { first, last }
      end
      best = smallest(symbol.children or {}, row, best)
    end
  end
  return best
end

---@param buf integer
---@param row integer
---@return integer? first row
---@return integer? last
local function by_server(buf, row)
  local params = { textDocument = { uri = vim.uri_from_bufnr(buf) } }
  for _, client in ipairs(vim.lsp.get_clients({ bufnr = buf, method = METHOD })) do
    local response = client:request_sync(METHOD, params, SYMBOL_MS, buf)
    local rows = response and smallest(response.result or {}, row)
    if rows then
      return unpack(rows)
    end
  end
end

--- Return the lines of the function around a line, or of the class that begins there; the line itself if there is none.
---@param buf integer
---@param lnum integer
---@return [integer, integer] range of lines
function M.lines(buf, lnum)
  local first, last = by_grammar(buf, lnum - 1)
  if not first then
    first, last = by_server(buf, lnum - 1)
  end
  local count = api.nvim_buf_line_count(buf)
  if not first or last - first >= MAX_LINES or last >= count then
    return { lnum, lnum }
  end
  return { first + 1, last + 1 }
end

return M
