--- Which changes use which: by the language server of a file, else by its grammar and its imports.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local clients = require('sanderling.code.clients')
local declared = require('sanderling.code.declared')
local loading = require('sanderling.access.loading')
local places = require('sanderling.code.places')
local resolve = require('sanderling.code.resolve')

local REFERENCES, SYMBOLS = 'textDocument/references', 'textDocument/documentSymbol'
M.server_ms = 2000 -- then the order is that of grammar and imports

local MAX_STEPS = 1000 -- with more, the order is that of the files
local MAX_ASKED = 200 -- symbols
local IMPORT = {
  '^%s*import%f[%W]',
  '^%s*from%s',
  '%f[%w]require%f[%W]',
  '^%s*#%s*include%f[%W]',
  '^%s*use%s',
  '^%s*pub%s+use%s',
  '^%s*mod%s',
  '%f[%w]from%s+[\'"]',
  '^%s*"[%w%./_-]+"%s*$', -- in a list of Go's
}
local WHOLE_DIRECTORY = { init = true, __init__ = true, index = true, mod = true }

---@class (exact) sanderling.review.uses.Symbol
---@field name string
---@field first integer row
---@field last integer
---@field spot? sanderling.code.Spot of its name

---@class (exact) sanderling.review.uses.Part of the text, which a step changes
---@field own sanderling.review.uses.Symbol[] that the step declares, or a part of which it changes
---@field first integer row of the smallest declaration around it, or its own
---@field last integer

---@param step sanderling.review.walk.Step
---@param symbols sanderling.review.uses.Symbol[]
---@return sanderling.review.uses.Part
local function part_of(step, symbols)
  local first, last = step.row, step.row + math.max(step.count, 1) - 1
  local own, around = {}, nil ---@type sanderling.review.uses.Symbol[], sanderling.review.uses.Symbol?
  for _, symbol in ipairs(symbols) do
    if first <= symbol.first and symbol.first <= last then
      own[#own + 1] = symbol
    elseif symbol.first < first and first <= symbol.last then
      around = (not around or symbol.first >= around.first) and symbol or around
    end
  end
  own[#own + 1] = around
  return {
    own = own,
    first = around and around.first or first,
    last = math.max(last, around and around.last or 0),
  }
end

---@param uses sanderling.review.order.Uses
---@param number integer
---@param other integer
local function add(uses, number, other)
  if number ~= other then
    uses[number] = uses[number] or {}
    uses[number][other] = true
  end
end

-- grammar and imports -------------------------------------------------------------------------------------------------

--- Return the name by which other files import a file.
---@param path string
---@return string
local function module_of(path)
  local name = vim.fn.fnamemodify(path, ':t:r')
  return WHOLE_DIRECTORY[name] and vim.fn.fnamemodify(path, ':h:t') or name
end

--- Return the words in the lines of a buffer that import something.
---@param buf integer
---@return table<string, true>
local function imported_by(buf)
  local found = {} ---@type table<string, true>
  for _, line in ipairs(api.nvim_buf_get_lines(buf, 0, -1, true)) do
    local is_import = vim.iter(IMPORT):any(function(pattern)
      return line:find(pattern) ~= nil
    end)
    for word in (is_import and line or ''):gmatch('[%w_-]+') do
      found[word] = true
    end
  end
  return found
end

---@param steps sanderling.review.walk.Step[]
---@return table<integer, integer[]> the numbers of the steps of each buffer
local function by_buffer(steps)
  local found = {} ---@type table<integer, integer[]>
  for number, step in ipairs(steps) do
    found[step.buf] = found[step.buf] or {}
    table.insert(found[step.buf], number)
  end
  return found
end

---@param buf integer
---@return sanderling.review.uses.Symbol[]
local function symbols_by_grammar(buf)
  local list = {} ---@type sanderling.review.uses.Symbol[]
  declared.list(buf, function(found)
    list = found
  end, true)
  return list
end

--- Are the files written in one language, and in one directory, so that they may share names without an import?
---@param a sanderling.review.walk.Step
---@param b sanderling.review.walk.Step
---@return boolean
local function are_together(a, b)
  return vim.fs.dirname(a.path) == vim.fs.dirname(b.path)
    and vim.fn.fnamemodify(a.path, ':e') == vim.fn.fnamemodify(b.path, ':e')
end

--- Add which steps name what others declare, in the same file or in one next to it.
---@param uses sanderling.review.order.Uses
---@param steps sanderling.review.walk.Step[]
---@param parts table<integer, sanderling.review.uses.Part>
local function add_names(uses, steps, parts)
  local declaring = {} ---@type table<string, table<integer, true>>
  for number, part in pairs(parts) do
    for _, symbol in ipairs(part.own) do
      declaring[symbol.name] = declaring[symbol.name] or {}
      declaring[symbol.name][number] = true
    end
  end
  for number, part in pairs(parts) do
    local lines = api.nvim_buf_get_lines(steps[number].buf, part.first, part.last + 1, false)
    for word in table.concat(lines, '\n'):gmatch('[%a_\128-\255][%w_\128-\255]*') do
      for other in pairs(declaring[word] and not declaring[word][number] and declaring[word] or {}) do
        if are_together(steps[number], steps[other]) then
          add(uses, number, other)
        end
      end
    end
  end
end

---@param steps sanderling.review.walk.Step[]
---@return sanderling.review.order.Uses
function M.by_text(steps)
  local uses, parts = {}, {} ---@type sanderling.review.order.Uses, table<integer, sanderling.review.uses.Part>
  local numbers = by_buffer(steps)
  for buf, own in pairs(numbers) do
    if loading.is_quiet(buf) then -- the user has not entered it
      loading.set_filetype(buf)
    end
    local symbols, imported = symbols_by_grammar(buf), imported_by(buf)
    for _, number in ipairs(own) do
      parts[number] = part_of(steps[number], symbols)
    end
    for other, theirs in pairs(numbers) do
      if other ~= buf and imported[module_of(steps[theirs[1]].path)] then
        for _, number in ipairs(own) do
          for _, used in ipairs(theirs) do
            add(uses, number, used)
          end
        end
      end
    end
  end
  add_names(uses, steps, parts)
  return uses
end

-- a language server ---------------------------------------------------------------------------------------------------

---@param buf integer
---@return vim.lsp.Client?
local function server_of(buf)
  if loading.is_quiet(buf) then -- the user has not entered it
    clients.attach(buf)
  end
  return vim.iter(clients.running({ bufnr = buf })):find(function(client)
    return client.initialized
      and client:supports_method(REFERENCES, buf)
      and client:supports_method(SYMBOLS, buf)
  end)
end

---@param buf integer
---@return sanderling.review.uses.Symbol[]
local function symbols_by_server(buf)
  local symbols, client = resolve.symbols(buf)
  return vim.tbl_map(function(symbol)
    return {
      name = symbol.chain[#symbol.chain],
      first = symbol.row,
      last = symbol.last_row,
      spot = resolve.spot_of(assert(client), buf, symbol),
    }
  end, symbols)
end

--- Return which steps use which; with a server, what it says about the steps of its files. Runs in a request.
---@param steps sanderling.review.walk.Step[]
---@param by_text sanderling.review.order.Uses
---@param is_late fun(): boolean the walk has begun, and its buffers may have left their servers: ask no more
---@return sanderling.review.order.Uses
local function by_servers(steps, by_text, is_late)
  local parts, servers, asked = {}, {}, 0 ---@type table<integer, sanderling.review.uses.Part>, table<integer, vim.lsp.Client>, integer
  for buf, own in pairs(by_buffer(steps)) do
    servers[buf] = not is_late() and server_of(buf) or nil
    local symbols = servers[buf] and symbols_by_server(buf) or {}
    servers[buf] = #symbols > 0 and servers[buf] or nil
    for _, number in ipairs(own) do
      parts[number] = part_of(steps[number], symbols)
    end
  end
  local uses = {} ---@type sanderling.review.order.Uses
  for number, others in pairs(by_text) do
    for other in pairs(others) do
      if not servers[steps[other].buf] then
        add(uses, number, other)
      end
    end
  end
  for used, step in ipairs(steps) do
    local client = servers[step.buf]
    for _, symbol in ipairs(client and parts[used].own or {}) do
      asked = asked + 1
      if asked > MAX_ASKED or is_late() then
        return by_text
      end
      local params = places.params(client, step.buf, symbol.spot.row, symbol.spot.col)
      params.context = { includeDeclaration = false }
      local found = places.found(asking.ask(client, REFERENCES, params, step.buf)).by_path
      for number, other in ipairs(steps) do
        local file = found[api.nvim_buf_get_name(other.buf)] or { rows = {} }
        for _, row in ipairs(file.rows) do
          if parts[number].first <= row and row <= parts[number].last then
            add(uses, number, used)
          end
        end
      end
    end
  end
  return uses
end

--- Find which steps use which, within `server_ms`.
---@param steps sanderling.review.walk.Step[]
---@param on_done fun(uses: sanderling.review.order.Uses)
function M.find(steps, on_done)
  if #steps > MAX_STEPS then
    return on_done({})
  end
  local by_text, is_done = M.by_text(steps), false
  local function finish(uses)
    if not is_done then
      is_done = true
      on_done(uses)
    end
  end
  if #clients.running() == 0 then
    return finish(by_text)
  end
  vim.defer_fn(function()
    finish(by_text)
  end, M.server_ms)
  asking.run(function(answer)
    finish(answer.value or by_text)
  end, function()
    return by_servers(steps, by_text, function()
      return is_done
    end)
  end)
end

return M
