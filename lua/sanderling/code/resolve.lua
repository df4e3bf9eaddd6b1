--- Finding the position of a symbol at which a server can be asked. Models give no columns.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local clients = require('sanderling.code.clients')
local names = require('sanderling.code.names')
local places = require('sanderling.code.places')

local DEFINITION, SYMBOLS = 'textDocument/definition', 'textDocument/documentSymbol'
local MAX_CANDIDATES, MAX_CONFIRMED = 8, 8

---@class (exact) sanderling.code.Spot
---@field row integer
---@field col integer byte

---@class (exact) sanderling.code.Candidates
---@field why string
---@field rows integer[]

--- Return where the server finds the definition of the name at the spot; nil if it finds none.
---@param buf integer
---@param spot sanderling.code.Spot
---@return string? definition
local function definition_at(buf, spot)
  for _, client in ipairs(clients.of(buf)) do
    if client:supports_method(DEFINITION, buf) then
      local params = places.params(client, buf, spot.row, spot.col)
      local first = places.found(asking.ask(client, DEFINITION, params, buf)).files[1]
      if first then
        return ('%s:%d'):format(first.path, first.rows[1])
      end
    end
  end
end

--- Choose among several spots of a name: the first, if they have the same definition.
---@param buf integer
---@param spots sanderling.code.Spot[]
---@return sanderling.code.Spot?
---@return boolean? is_ambiguous
local function confirmed(buf, spots)
  local found, definition
  for i, spot in ipairs(spots) do
    local here = i <= MAX_CONFIRMED and definition_at(buf, spot)
    if here and definition and here ~= definition then
      return nil, true
    end
    found, definition = found or here and spot, definition or here
  end
  return found
end

---@param buf integer
---@param first_row integer
---@param last_row integer
---@param symbol string
---@param is_literal? boolean only where its literal text occurs
---@return sanderling.code.Spot[]
local function spots_in(buf, first_row, last_row, symbol, is_literal)
  local spots, name = {}, names.last(symbol)
  for i, line in ipairs(api.nvim_buf_get_lines(buf, first_row, last_row + 1, false)) do
    local row = first_row + i - 1
    local is_meant = not is_literal or line:find(symbol, 1, true)
    local cols = is_meant and names.in_line(line, symbol) or {}
    local parsed = names.of_grammar(buf, row, cols, name)
    for _, col in ipairs(#parsed > 0 and parsed or {}) do
      spots[#spots + 1] = { row = row, col = col }
    end
    if #spots >= MAX_CANDIDATES * 4 then
      break
    end
  end
  return spots
end

---@param why string
---@param rows integer[]
---@return sanderling.code.Candidates
local function candidates(why, rows)
  local seen, few = {}, {} ---@type table<integer, true>, integer[]
  for _, row in ipairs(rows) do
    if not seen[row] and #few < MAX_CANDIDATES then
      few[#few + 1], seen[row] = row, true
    end
  end
  return { why = why, rows = few }
end

---@param spots sanderling.code.Spot[]
---@return integer[]
local function rows_of(spots)
  return vim.tbl_map(function(spot)
    return spot.row
  end, spots)
end

---@param buf integer
---@param row integer
---@param symbol string
---@return sanderling.code.Spot?
---@return sanderling.code.Candidates?
local function on_line(buf, row, symbol)
  local cols = names.in_line(places.line(buf, row), symbol)
  local name = names.last(symbol)
  local parsed = names.of_grammar(buf, row, cols, name)
  cols = #parsed > 0 and parsed or cols
  local spots = vim.tbl_map(function(col)
    return { row = row, col = col }
  end, cols) ---@type sanderling.code.Spot[]
  if #spots <= 1 then
    return spots[1]
  end
  local spot, is_ambiguous = confirmed(buf, spots)
  if is_ambiguous then
    local words =
      '%s occurs there %d times with different meanings: give more of the line as symbol, as in `a.%s`'
    return nil, candidates(words:format(name, #spots, name), { row })
  end
  return spot or spots[1]
end

---@param buf integer
---@return sanderling.code.Symbol[]
---@return vim.lsp.Client?
function M.symbols(buf)
  for _, client in ipairs(clients.of(buf)) do
    if client:supports_method(SYMBOLS, buf) then
      local params = { textDocument = { uri = vim.uri_from_bufnr(buf) } }
      local result = asking.ask(client, SYMBOLS, params, buf)
      if result and #result > 0 then
        return names.flat(result), client
      end
    end
  end
  return {}
end

--- Return the position of a symbol's name, before which some servers include other text.
---@param client vim.lsp.Client
---@param buf integer
---@param symbol sanderling.code.Symbol
---@return sanderling.code.Spot
function M.spot_of(client, buf, symbol)
  local col = places.col(client, buf, symbol.row, symbol.character)
  local name = symbol.chain[#symbol.chain]
  for _, each in ipairs(names.in_line(places.line(buf, symbol.row), name)) do
    if each >= col then
      return { row = symbol.row, col = each }
    end
  end
  return { row = symbol.row, col = col }
end

---@param symbols sanderling.code.Symbol[]
---@param chain string[]
---@return sanderling.code.Symbol[] those with exactly these names: overloads, and the implementation last
local function overloads(symbols, chain)
  return vim.tbl_filter(function(each)
    return vim.deep_equal(each.chain, chain)
  end, symbols)
end

---@param buf integer
---@param symbol string
---@param is_called boolean the implementation is meant, not its overloads
---@return sanderling.code.Spot?
---@return sanderling.code.Candidates?
local function in_file(buf, symbol, is_called)
  local symbols, client = M.symbols(buf)
  local parts = names.parts(symbol)
  local fitting = vim.tbl_filter(function(each)
    return names.fits(parts, each.chain)
  end, symbols)
  if client and #fitting == 1 then
    return M.spot_of(client, buf, fitting[1])
  elseif
    client
    and is_called
    and #fitting > 1
    and #overloads(fitting, fitting[1].chain) == #fitting
  then
    return M.spot_of(client, buf, fitting[#fitting])
  elseif #fitting > 1 then
    local rows = vim.tbl_map(function(each)
      return each.row
    end, fitting)
    return nil, candidates(('%s matches several symbols of this file'):format(symbol), rows)
  end
  local spots = spots_in(buf, 0, -2, symbol, #parts > 1)
  local spot, is_ambiguous = confirmed(buf, spots)
  if is_ambiguous then
    return nil,
      candidates(('%s has different meanings in this file'):format(symbol), rows_of(spots))
  end
  return spot
end

--- Return the spot of the implementation if an overload is at `spot`.
---@param buf integer
---@param spot sanderling.code.Spot
---@return sanderling.code.Spot?
local function implementation(buf, spot)
  local symbols, client = M.symbols(buf)
  for _, symbol in ipairs(symbols) do
    if client and symbol.row == spot.row and M.spot_of(client, buf, symbol).col == spot.col then
      local all = overloads(symbols, symbol.chain)
      return M.spot_of(client, buf, all[#all])
    end
  end
end

--- Return the spot of a symbol in a buffer, or candidates.
---@param buf integer
---@param symbol string
---@param lnum? integer from 1
---@param is_called? boolean the implementation is meant, not its overloads
---@return sanderling.code.Spot?
---@return sanderling.code.Candidates?
function M.find(buf, symbol, lnum, is_called)
  if not lnum then
    return in_file(buf, symbol, is_called == true)
  end
  local spot, several = on_line(buf, lnum - 1, symbol)
  if spot or several then
    return spot and is_called and implementation(buf, spot) or spot, several
  end
  local spots = spots_in(buf, 0, -2, names.last(symbol))
  table.sort(spots, function(a, b)
    return math.abs(a.row + 1 - lnum) < math.abs(b.row + 1 - lnum)
  end)
  local words = '%s is not on line %d'
  return nil, #spots > 0 and candidates(words:format(symbol, lnum), rows_of(spots)) or nil
end

return M
