--- Changes that language servers propose: renames, code actions, moved files. Nothing is changed here: the edits are sent to Python.
local M = {}

local asking = require('sanderling.code.asking')
local clients = require('sanderling.code.clients')
local places = require('sanderling.code.places')
local resolve = require('sanderling.code.resolve')

local RENAME, PREPARE = 'textDocument/rename', 'textDocument/prepareRename'
local ACTION, RESOLVE = 'textDocument/codeAction', 'codeAction/resolve'
local WILL_MOVE, DID_MOVE = 'workspace/willRenameFiles', 'workspace/didRenameFiles'
local READY_MS = 3000
local INDEXING = '%s, so its changes would be incomplete. Try again later.'
local REFUSED = '%s refused: %s'
local COMMAND =
  'The action "%s" runs the command %s in the server, whose changes could not be reviewed, so it was refused. Make the change with edit.'
local NO_ACTION = 'No action "%s" there. Available: %s'

---@alias sanderling.code.Edit [integer, integer, integer, integer, string] rows and characters of a range, and its new text

---@class (exact) sanderling.code.FileEdits
---@field path string
---@field edits sanderling.code.Edit[]
---@field is_attached boolean the server has the buffer's text, if there is a buffer

---@class (exact) sanderling.code.Change
---@field server string
---@field encoding string the unit of characters
---@field files sanderling.code.FileEdits[]
---@field operations [string, string, string][] other file operations: kind, path, new path
---@field candidates? sanderling.code.Candidates
---@field titles? string[]
---@field note? string

---@param client vim.lsp.Client
---@param path string
---@return boolean
local function is_attached(client, path)
  for buf in pairs(client.attached_buffers) do
    if vim.api.nvim_buf_is_valid(buf) and vim.api.nvim_buf_get_name(buf) == path then
      return true
    end
  end
  return false
end

---@param client vim.lsp.Client
---@param change sanderling.code.Change
---@param uri string
---@param edits table[]
local function add_edits(client, change, uri, edits)
  local path = places.path(uri)
  local file = { path = path, edits = {}, is_attached = is_attached(client, path) }
  for i, edit in ipairs(edits) do
    if edit.snippet then
      asking.fail(REFUSED:format('Sanderling', 'the server answered with a snippet.'))
    end
    local first, last = edit.range.start, edit.range['end']
    file.edits[i] = { first.line, first.character, last.line, last.character, edit.newText }
  end
  change.files[#change.files + 1] = file
end

--- Convert a server's workspace edit.
---@param client vim.lsp.Client
---@param edit? lsp.WorkspaceEdit
---@return sanderling.code.Change
local function as_data(client, edit)
  local change =
    { server = client.name, encoding = client.offset_encoding, files = {}, operations = {} }
  edit = edit or {}
  for _, each in ipairs(edit.documentChanges or {}) do
    if each.kind then
      local path = places.path(each.uri or each.oldUri)
      local new_path = each.newUri and places.path(each.newUri) or ''
      change.operations[#change.operations + 1] = { each.kind, path, new_path }
    else
      add_edits(client, change, each.textDocument.uri, each.edits)
    end
  end
  for uri, edits in pairs(not edit.documentChanges and edit.changes or {}) do
    add_edits(client, change, uri, edits)
  end
  return change
end

--- Wait for servers to become idle, as they are busy for a moment after each change; end the request if they stay busy.
---@param all vim.lsp.Client[]
local function must_be_ready(all)
  local still ---@type string?
  asking.wait_until(READY_MS, function()
    still = clients.still_at(all)
    return still == nil
  end)
  if still then
    asking.fail(INDEXING:format(still))
  end
end

--- Return the change that renames a symbol.
---@param buf integer
---@param symbol string
---@param lnum? integer
---@param new string
---@return sanderling.code.Change
function M.rename(buf, symbol, lnum, new)
  local client = clients.knowing(buf, RENAME)[1]
  must_be_ready({ client })
  local spot, candidates = resolve.find(buf, symbol, lnum)
  if not spot then
    local change = as_data(client)
    change.candidates = candidates
    return change
  end
  local params = places.params(client, buf, spot.row, spot.col)
  if client:supports_method(PREPARE, buf) then
    local result, problem = asking.ask(client, PREPARE, params, buf)
    if not result then
      asking.fail(REFUSED:format(client.name, problem or 'this cannot be renamed.'))
    end
  end
  params.newName = new
  local edit, problem = asking.ask(client, RENAME, params, buf)
  if problem then
    asking.fail(REFUSED:format(client.name, problem))
  end
  return as_data(client, edit)
end

--- Return the diagnostics of a line as the server sent them.
---@param client vim.lsp.Client
---@param buf integer
---@param row integer
---@return table[]
local function diagnostics_of(client, buf, row)
  local found = {}
  for _, each in ipairs(vim.diagnostic.get(buf, { lnum = row })) do
    local data = each.user_data and each.user_data.lsp
    local name = vim.diagnostic.get_namespace(each.namespace).name
    if data and name:find(('.%s.%d'):format(client.name, client.id), 1, true) then
      found[#found + 1] = data
    end
  end
  return found
end

---@class (exact) sanderling.code.Offer
---@field client vim.lsp.Client
---@field action table

--- Return the actions that servers offer for a line.
---@param buf integer
---@param row integer
---@param spot? sanderling.code.Spot
---@return sanderling.code.Offer[]
local function offers(buf, row, spot)
  local line, found = places.line(buf, row), {}
  for _, client in ipairs(clients.knowing(buf, ACTION)) do
    local first = places.params(client, buf, row, spot and spot.col or 0)
    local last = spot and first or places.params(client, buf, row, #line)
    local params = {
      textDocument = first.textDocument,
      range = { start = first.position, ['end'] = last.position },
      context = { diagnostics = diagnostics_of(client, buf, row), triggerKind = 1 },
    }
    for _, action in ipairs(asking.ask(client, ACTION, params, buf) or {}) do
      if not action.disabled then
        found[#found + 1] = { client = client, action = action }
      end
    end
  end
  return found
end

---@param command string|table
---@return string
local function command_name(command)
  return type(command) == 'table' and tostring(command.command) or tostring(command)
end

---@param offer sanderling.code.Offer
---@param buf integer
---@return sanderling.code.Change
local function take(offer, buf)
  local client, action = offer.client, offer.action
  local is_command = type(action.command) == 'string'
  if not is_command and not action.edit and client:supports_method(RESOLVE, buf) then
    local resolved, problem = asking.ask(client, RESOLVE, action, buf)
    if problem then
      asking.fail(REFUSED:format(client.name, problem))
    end
    action = resolved or action
  end
  if not action.edit then
    asking.fail(COMMAND:format(action.title, command_name(action.command or '(none)')))
  end
  local change = as_data(client, action.edit)
  if action.command then
    local words = 'The server would then run its command %s, which was not done.'
    change.note = words:format(command_name(action.command))
  end
  return change
end

--- Return the actions for a line or a symbol of it; with a `title`, the change that this action makes.
---@param buf integer
---@param symbol string
---@param lnum integer
---@param title string
---@return sanderling.code.Change
function M.action(buf, symbol, lnum, title)
  local spot = symbol ~= '' and resolve.find(buf, symbol, lnum) or nil
  local all = offers(buf, lnum - 1, spot)
  local titles = vim.tbl_map(function(offer)
    return offer.action.title
  end, all)
  if title == '' then
    local asked = clients.knowing(buf, ACTION)
    local change = as_data(asked[1])
    change.titles = titles
    return change
  end
  for _, offer in ipairs(all) do
    if offer.action.title == title then
      return take(offer, buf)
    end
  end
  asking.fail(NO_ACTION:format(title, #titles > 0 and table.concat(titles, '; ') or 'none.'))
  error()
end

---@param old string
---@param new string
---@return table
local function moved_files(old, new)
  return { files = { { oldUri = vim.uri_from_fname(old), newUri = vim.uri_from_fname(new) } } }
end

--- Return the changes that moving a file requires in other files.
---@param buf integer of the file
---@param old string
---@param new string
---@return sanderling.code.Change
function M.move(buf, old, new)
  local all = clients.of(buf)
  must_be_ready(all)
  local change = as_data(all[1])
  local is_known = false
  for _, client in ipairs(all) do
    if client:supports_method(WILL_MOVE, buf) then
      is_known = true
      local edit = asking.ask(client, WILL_MOVE, moved_files(old, new), buf)
      if edit and #change.files == 0 then
        change = as_data(client, edit)
      end
    end
  end
  if not is_known then
    change.note = clients.names(all) .. ' cannot find references to the file. Use grep.'
  end
  return change
end

--- Notify the servers that a file was moved.
---@param old string
---@param new string
function M.moved(old, new)
  for _, client in ipairs(package.loaded['vim.lsp'] and vim.lsp.get_clients() or {}) do
    if client:supports_method(DID_MOVE) then
      client:notify(DID_MOVE, moved_files(old, new))
    end
  end
end

return M
