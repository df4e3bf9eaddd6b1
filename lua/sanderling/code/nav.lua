--- What language servers know about a symbol: its definition, uses, documentation and calls.
local M = {}

local asking = require('sanderling.code.asking')
local clients = require('sanderling.code.clients')
local names = require('sanderling.code.names')
local places = require('sanderling.code.places')
local resolve = require('sanderling.code.resolve')
local words = require('sanderling.ui.words')

local SYMBOLS, PREPARE = 'workspace/symbol', 'textDocument/prepareCallHierarchy'
local INDEXING = '%s, so its answer would be incomplete. Use grep, or try again later.'
local MAX_HOVER_BYTES, MAX_SYMBOLS = 8000, 2000
local MAX_NAMES, MAX_SOURCES = 8, 12

---@class (exact) sanderling.code.Answer
---@field server string
---@field files? sanderling.code.Places[]
---@field count? integer
---@field hover? string
---@field sources? string[] files that `hover` may quote
---@field symbols? sanderling.code.Symbol[]
---@field row? integer of the symbol in the request
---@field candidates? sanderling.code.Candidates
---@field still? string what the server is still doing: there may be more

---@type table<string, string>
local METHODS = {
  definition = 'textDocument/definition',
  references = 'textDocument/references',
  implementations = 'textDocument/implementation',
  type = 'textDocument/typeDefinition',
}

--- Ask the servers one after another until one knows something.
---@param buf integer
---@param spot sanderling.code.Spot
---@param method string
---@return sanderling.code.Found
---@return vim.lsp.Client[] asked
local function located(buf, spot, method)
  local asked = clients.knowing(buf, method)
  for _, client in ipairs(asked) do
    local params = places.params(client, buf, spot.row, spot.col)
    params.context = { includeDeclaration = true }
    local result = asking.ask(client, method, params, buf)
    local found = places.found(result)
    if found.count > 0 then
      return found, { client }
    end
  end
  return places.none(), asked
end

--- Return the calls to or from the function at the spot: the lines with a call, and the calling or called function of each.
---@param buf integer
---@param spot sanderling.code.Spot
---@param op 'callers'|'callees'
---@return sanderling.code.Found
---@return vim.lsp.Client[] asked
local function calls(buf, spot, op)
  local asked, found = clients.knowing(buf, PREPARE), places.none()
  local is_in, seen = op == 'callers', {} ---@type boolean, table<string, true>
  local method = is_in and 'callHierarchy/incomingCalls' or 'callHierarchy/outgoingCalls'
  for _, client in ipairs(asked) do
    local params = places.params(client, buf, spot.row, spot.col)
    for _, item in ipairs(asking.ask(client, PREPARE, params, buf) or {}) do
      for _, call in ipairs(asking.ask(client, method, { item = item }, buf) or {}) do
        local other = is_in and call.from or call.to
        for _, range in ipairs(call.fromRanges) do
          local uri = is_in and other.uri or item.uri
          local key = ('%s:%d:%d:%s'):format(
            uri,
            range.start.line,
            range.start.character,
            other.name
          )
          if not seen[key] then -- overloads repeat it
            seen[key] = true
            places.add(found, uri, range.start.line, other.name)
          end
        end
      end
    end
  end
  return found, asked
end

---@param contents lsp.MarkupContent|lsp.MarkedString|lsp.MarkedString[]
---@return string
local function hover_text(contents)
  local lines = vim.lsp.util.convert_input_to_markdown_lines(contents)
  return words.trimmed(table.concat(lines, '\n'))
end

--- Return the files that the documentation of a symbol may come from: the files of its type, and of the names in its line.
---@param buf integer
---@param spot sanderling.code.Spot
---@param client vim.lsp.Client
---@return string[]
local function sources(buf, spot, client)
  local line, cols = places.line(buf, spot.row), { spot.col } ---@type string, integer[]
  for col in line:gmatch('()[%a_\128-\255][%w_\128-\255]*') do
    if #cols < MAX_NAMES then
      cols[#cols + 1] = col - 1
    end
  end
  local paths = {} ---@type table<string, true>
  for _, col in ipairs(cols) do
    for _, method in ipairs({ METHODS.definition, METHODS.type }) do
      if client:supports_method(method, buf) then
        local result = asking.ask(client, method, places.params(client, buf, spot.row, col), buf)
        for _, file in ipairs(places.found(result).files) do
          paths[file.path] = true
        end
      end
    end
  end
  return vim.list_slice(vim.tbl_keys(paths), 1, MAX_SOURCES)
end

---@param buf integer
---@param spot sanderling.code.Spot
---@return sanderling.code.Answer
local function hover(buf, spot)
  local asked, texts = clients.knowing(buf, 'textDocument/hover'), {}
  local from = {} ---@type string[]
  for _, client in ipairs(asked) do
    local params = places.params(client, buf, spot.row, spot.col)
    local result = asking.ask(client, 'textDocument/hover', params, buf)
    local text = result and result.contents and hover_text(result.contents) or ''
    if text ~= '' then
      texts[#texts + 1] = text
      vim.list_extend(from, sources(buf, spot, client))
    end
  end
  local text = table.concat(texts, '\n\n'):sub(1, MAX_HOVER_BYTES)
  local found = places.none()
  for _, client in ipairs(asked) do
    if client:supports_method(METHODS.definition, buf) then
      found = located(buf, spot, METHODS.definition)
      break
    end
  end
  return {
    server = clients.names(asked),
    hover = text,
    sources = from,
    files = places.files(found),
    count = found.count,
  }
end

---@param buf integer
---@return sanderling.code.Answer
local function outline(buf)
  local asked = clients.knowing(buf, 'textDocument/documentSymbol')
  local symbols = resolve.symbols(buf)
  if #symbols == 0 then
    local still = clients.still_at(asked)
    if still then
      asking.fail(INDEXING:format(still))
    end
  end
  return { server = clients.names(asked), symbols = symbols }
end

--- Answer `op` for a symbol of the buffer.
---@param buf integer
---@param op string
---@param symbol string
---@param lnum? integer
---@return sanderling.code.Answer
function M.navigate(buf, op, symbol, lnum)
  if op == 'outline' then
    return outline(buf)
  end
  local all = clients.of(buf)
  local spot, candidates = resolve.find(buf, symbol, lnum, op == 'callees')
  if not spot then
    local still = clients.still_at(all)
    if still and not candidates then
      asking.fail(INDEXING:format(still))
    end
    return { server = clients.names(all), candidates = candidates, still = still }
  end
  local answer, asked
  if op == 'hover' then
    answer, asked = hover(buf, spot), all
  else
    local found
    if op == 'callers' or op == 'callees' then
      found, asked = calls(buf, spot, op)
    else
      found, asked = located(buf, spot, METHODS[op])
    end
    answer = { server = clients.names(asked), files = places.files(found), count = found.count }
  end
  answer.row, answer.still = spot.row, clients.still_at(asked)
  if answer.still and answer.count == 0 and (answer.hover or '') == '' then
    asking.fail(INDEXING:format(answer.still))
  end
  return answer
end

--- Return the symbols of the project with this name or, with `is_like`, with names that contain it.
---@param project string
---@param symbol string
---@param is_like boolean
---@return sanderling.code.Answer
function M.symbols(project, symbol, is_like)
  local asked, found = clients.of_project(project, SYMBOLS, is_like), places.none()
  local name, parts = names.last(symbol), names.parts(symbol)
  for _, client in ipairs(asked) do
    local params = { query = is_like and symbol or name }
    local attached = next(client.attached_buffers) or 0
    for _, each in ipairs(asking.ask(client, SYMBOLS, params, attached) or {}) do
      local chain = vim.list_extend(names.parts(each.containerName or ''), names.parts(each.name))
      local is_meant = is_like or chain[#chain] == name
      if is_meant and each.location and found.count < MAX_SYMBOLS then
        local range = each.location.range or { start = { line = 0 } }
        local whole = table.concat(chain, '.')
        local is_whole = is_like or names.fits(parts, chain)
        local label = ('%s %s'):format(names.kind(each.kind), whole)
        places.add(found, each.location.uri, range.start.line, is_whole and label or '')
      end
    end
  end
  local still = clients.still_at(asked)
  if still and found.count == 0 and is_like then
    asking.fail(INDEXING:format(still))
  end
  return {
    server = clients.names(asked),
    files = places.files(found),
    count = found.count,
    still = still,
  }
end

return M
