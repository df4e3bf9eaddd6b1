--- Sources of mentions other than files: content of the editor and of git.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')
local context = require('sanderling.prompt.context')
local declared = lazy('sanderling.code.declared')
local enclosing = lazy('sanderling.code.enclosing')
local files = require('sanderling.access.files')
local git = require('sanderling.access.git')
local process = require('sanderling.access.process')
local words = require('sanderling.ui.words')

local MAX_LISTED = 300 -- places per list
local SYMBOL_MS = 1000 -- per server
local SYMBOL_LINES = 30 -- if a server does not report the end of a symbol

---@class (exact) sanderling.prompt.sources.Found
---@field path string of a file, or the mention
---@field lines string[]
---@field first integer
---@field origin string description for the model
---@field filetype? string
---@field media_type? string of an image, whose base64 text is the only line
---@field is_excerpt? boolean it is not a whole file, whose rest can be read

---@return integer? buf
local function code_buffer()
  local win = files.code_window('')
  return win and api.nvim_win_get_buf(win)
end

---@param buf integer
---@param project string
---@param first? integer
---@param last? integer
---@return sanderling.prompt.sources.Found
local function of_buffer(buf, project, first, last)
  return {
    path = context.path_of(buf, project),
    lines = api.nvim_buf_get_lines(buf, (first or 1) - 1, last or -1, false),
    first = first or 1,
    origin = 'current editor text',
    filetype = vim.bo[buf].filetype,
  }
end

---@param project string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_selection(project)
  local buf = code_buffer()
  local from, to = buf and api.nvim_buf_get_mark(buf, '<'), buf and api.nvim_buf_get_mark(buf, '>')
  if not buf or from[1] == 0 then
    return nil, 'no selection'
  end
  return of_buffer(buf, project, from[1], to[1])
end

--- Return a list of places, `path:line: text`.
---@param name string
---@param origin string
---@param items { path: string, lnum: integer, text: string }[]
---@return sanderling.prompt.sources.Found
local function of_places(name, origin, items)
  local lines = {}
  for i, item in ipairs(items) do
    if i > MAX_LISTED then
      lines[i] = ('... and %d more'):format(#items - MAX_LISTED)
      break
    end
    lines[i] = ('%s:%d: %s'):format(item.path, item.lnum, words.first_line(item.text))
  end
  return { path = name, lines = lines, first = 1, origin = origin }
end

local SEVERITIES = { 'error', 'warning', 'information', 'hint' }

---@param list vim.Diagnostic[]
---@param project string
---@return sanderling.prompt.sources.Found
local function of_reports(list, project)
  table.sort(list, function(one, other)
    return one.lnum < other.lnum
  end)
  return of_places(
    '@diagnostics',
    'diagnostics of language servers and linters',
    vim.tbl_map(function(each)
      local text = ('%s: %s'):format(SEVERITIES[each.severity], each.message)
      return { path = context.path_of(each.bufnr, project), lnum = each.lnum + 1, text = text }
    end, list)
  )
end

--- Return the diagnostics that overlap a range of lines.
---@param buf integer
---@param project string
---@param range [integer, integer]
---@return sanderling.prompt.sources.Found? found nil if there are none
---@return [integer, integer]? lines that they cover
function M.reported(buf, project, range)
  local first, last = unpack(range)
  local from, to = math.huge, 0
  local list = vim.tbl_filter(function(each)
    local ends = math.max(each.lnum, each.end_lnum or each.lnum) + 1
    if each.lnum + 1 > last or ends < first then
      return false
    end
    from, to = math.min(from, each.lnum + 1), math.max(to, ends)
    return true
  end, vim.diagnostic.get(buf))
  if #list > 0 then
    return of_reports(list, project), { from, math.min(to, api.nvim_buf_line_count(buf)) }
  end
end

---@param project string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_diagnostics(project)
  local buf = code_buffer()
  local list = buf and vim.diagnostic.get(buf) or {}
  if #list == 0 then
    return nil, 'no diagnostics'
  end
  return of_reports(list, project)
end

---@param project string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_quickfix(project)
  local items = {}
  for _, each in ipairs(vim.fn.getqflist()) do
    if each.valid == 1 and each.bufnr > 0 then
      local path = context.path_of(each.bufnr, project)
      items[#items + 1] = { path = path, lnum = each.lnum, text = each.text }
    end
  end
  if #items == 0 then
    return nil, 'the quickfix list is empty'
  end
  return of_places('@quickfix', "the editor's quickfix list", items)
end

--- Return a difference from git.
---@param name string
---@param project string
---@param arguments string[]
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_git(name, project, arguments)
  local difference = git.diff(project, arguments)
  if not difference then
    return nil, 'git failed'
  elseif difference == '' then
    return nil, 'no changes'
  end
  local lines = words.lines_of(difference)
  return { path = name, lines = lines, first = 1, origin = 'from git', filetype = 'diff' }
end

--- Collect the locations of a name from a language server's answer: nested symbols, or a flat list.
---@param symbols table[]
---@param name string
---@param uri string for symbols without a file
---@param found { uri: string, range: lsp.Range }[]
local function collect(symbols, name, uri, found)
  for _, symbol in ipairs(symbols) do
    local bare = symbol.name:gsub('%(.*$', '')
    if bare == name then
      local location = symbol.location or { uri = uri, range = symbol.range }
      found[#found + 1] = location.range and location or nil
    end
    collect(symbol.children or {}, name, uri, found)
  end
end

--- Return the locations of a name: from the code buffer's symbols, else from the workspaces of its language servers.
---@param buf integer
---@param name string
---@return { uri: string, range: lsp.Range }[]
local function places_of(buf, name)
  local uri, found = vim.uri_from_bufnr(buf), {}
  local asked = {
    { 'textDocument/documentSymbol', { textDocument = { uri = uri } } },
    { 'workspace/symbol', { query = name } },
  }
  for _, each in ipairs(asked) do
    local method, params = unpack(each)
    for _, client in
      ipairs(#found == 0 and vim.lsp.get_clients({ bufnr = buf, method = method }) or {})
    do
      local is_awaited, response = process.await(function(settle)
        return (
          client:request(method, params, function(_, result)
            settle({ result = result })
          end, buf)
        )
      end)
      if not is_awaited then
        response = client:request_sync(method, params, SYMBOL_MS, buf)
      end
      collect(response and response.result or {}, name, uri, found)
    end
  end
  return found
end

--- Return where an open file declares a name, by its grammar.
---@param name string
---@return { uri: string, range: lsp.Range, is_whole: boolean }?
local function declared_place(name)
  for _, info in ipairs(vim.fn.getbufinfo({ bufloaded = 1, buflisted = 1 })) do
    local function place_in(list)
      for _, each in ipairs(list) do
        if each.name == name then
          local range = { start = { line = each.first }, ['end'] = { line = each.last } }
          return { uri = vim.uri_from_bufnr(info.bufnr), range = range, is_whole = true }
        end
      end
    end
    local found
    if vim.bo[info.bufnr].buftype == '' and info.name ~= '' then
      declared.list(info.bufnr, function(list)
        found = place_in(list)
      end, true)
    end
    if found then
      return found
    end
  end
end

--- Return the lines of a symbol.
---@param name string
---@param project string
---@return sanderling.prompt.sources.Found?
---@return string? problem
function M.symbol(name, project)
  local buf = code_buffer()
  local has_server = buf ~= nil and #vim.lsp.get_clients({ bufnr = buf }) > 0
  local place = buf and has_server and places_of(buf, name)[1] or declared_place(name)
  local path = place and vim.startswith(place.uri, 'file:') and vim.uri_to_fname(place.uri)
  local real = path and files.find(path, project)
  if not place or not real then
    return nil,
      has_server and 'unknown to the language server'
        or 'no language server for the last file you were in'
  end
  local at = vim.fn.bufnr('^' .. vim.fn.fnameescape(real) .. '$')
  local is_open = at ~= -1 and api.nvim_buf_is_loaded(at)
  local first, last = place.range.start.line, place.range['end'].line
  last = (last > first or place.is_whole) and last or first + SYMBOL_LINES - 1
  local lines = is_open and api.nvim_buf_get_lines(at, first, last + 1, false)
    or vim.list_slice(vim.fn.readfile(real, '', last + 1), first + 1)
  return {
    path = vim.fs.relpath(project, real) or real,
    lines = lines,
    first = first + 1,
    origin = is_open and 'current editor text' or 'as saved on disk',
    filetype = vim.filetype.match({ filename = real }) or '',
  }
end

--- Return the function at the cursor of the last code window, or the line if it is not blank.
---@param project string
---@return sanderling.Selection?
function M.around_cursor(project)
  local win = files.code_window('')
  if not win then
    return nil
  end
  local buf = api.nvim_win_get_buf(win)
  local first, last = unpack(enclosing.lines(buf, api.nvim_win_get_cursor(win)[1]))
  local selection = context.selection(buf, first, last, project)
  return selection and selection.text:find('%S') and selection or nil
end

---@type table<string, fun(project: string): sanderling.prompt.sources.Found?, string?>
M.BY_WORD = {
  buffer = function(project)
    local buf = code_buffer()
    if not buf then
      return nil, 'no file is open'
    end
    return of_buffer(buf, project)
  end,
  selection = of_selection,
  diagnostics = of_diagnostics,
  quickfix = of_quickfix,
  diff = function(project)
    return of_git('@diff', project, {})
  end,
  staged = function(project)
    return of_git('@staged', project, { '--cached' })
  end,
  clipboard = function()
    return require('sanderling.prompt.images').of_clipboard()
  end,
}

return M
