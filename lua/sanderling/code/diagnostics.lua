--- Diagnostics that the model requests: the current ones of language servers and linters in the editor.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local clients = require('sanderling.code.clients')
local edited = require('sanderling.editing.diagnostics')
local reported = require('sanderling.editing.reported')
local time = require('sanderling.ui.time')

local METHOD = 'textDocument/diagnostic'
local FIRST_MS = 1000
local MAX_WAIT_MS = 6000 -- the host's limit is 10 s
local MAX_TOLD = 1000

--- Update the diagnostics of a buffer: request them where supported; wait a second for other servers if the buffer is new.
---@param buf integer
---@param is_new boolean
local function refresh(buf, is_new)
  local pushes = false
  for _, client in ipairs(clients.of(buf)) do
    if client:supports_method(METHOD, buf) then
      local provider = client.server_capabilities.diagnosticProvider
      local params = {
        textDocument = { uri = vim.uri_from_bufnr(buf) },
        identifier = type(provider) == 'table' and provider.identifier or nil,
      }
      local result, problem = asking.ask(client, METHOD, params, buf)
      local handler = client.handlers[METHOD] or vim.lsp.handlers[METHOD]
      local context = { method = METHOD, client_id = client.id, bufnr = buf, params = params }
      if result and not problem then
        handler(nil, result, context)
      end
    else
      pushes = is_new
    end
  end
  asking.wait_until(pushes and FIRST_MS or 0, function()
    return #vim.diagnostic.get(buf) > 0
  end)
end

---@class (exact) sanderling.code.Diagnostics
---@field found sanderling.editing.Diagnostic[] errors first
---@field count integer
---@field servers string
---@field still? string
---@field late? string servers that have not reported since the agent's last edit

--- Wait until the servers have reported on the agent's last edits: of one buffer, or of all.
---@param buf? integer
---@return string? late names of servers that have not
local function wait_for_edits(buf)
  local bufs = buf and { buf } or edited.pending()
  local asked_ms = time.now_ms()
  asking.wait_until(MAX_WAIT_MS, function()
    return not vim.iter(bufs):any(function(each)
      return edited.is_to_come(each, asked_ms)
    end)
  end)
  local late = {} ---@type table<string, true>
  for _, each in ipairs(bufs) do
    for _, name in ipairs(edited.missing(each)) do
      late[name] = true
    end
  end
  local names = vim.tbl_keys(late) ---@type string[]
  table.sort(names)
  return #names > 0 and table.concat(names, ', ') or nil
end

--- Return the diagnostics of one buffer, or of all.
---@param buf? integer
---@param is_new boolean loaded for this
---@return sanderling.code.Diagnostics
function M.said(buf, is_new)
  local asked ---@type vim.lsp.Client[]
  if buf then
    local is_said_by_others = #vim.diagnostic.get(buf) > 0
    asked = is_said_by_others and clients.running({ bufnr = buf }) or clients.of(buf)
    if #asked > 0 then
      refresh(buf, is_new)
    end
  else
    asked = clients.running()
    for _, each in ipairs(edited.pending()) do
      if #clients.running({ bufnr = each }) > 0 then
        refresh(each, false)
      end
    end
  end
  local late = wait_for_edits(buf)
  local all = vim.tbl_filter(function(diagnostic)
    local name = api.nvim_buf_get_name(diagnostic.bufnr)
    return name ~= '' and vim.bo[diagnostic.bufnr].buftype == ''
  end, vim.diagnostic.get(buf, { severity = { min = vim.diagnostic.severity.WARN } }))
  reported.sort(all, function(each)
    return { each.severity, each.bufnr, each.lnum }
  end)
  return {
    found = vim.tbl_map(function(each)
      return reported.as_told(each, false)
    end, vim.list_slice(all, 1, MAX_TOLD)),
    count = #all,
    servers = clients.names(asked),
    still = clients.still_at(asked),
    late = late,
  }
end

return M
