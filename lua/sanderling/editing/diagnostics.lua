--- Diagnostics caused by the agent's edits: what language servers report afterwards and did not report before.
---
--- A *watch* starts before the first edit of a message with the diagnostics known then, and covers the other edits of
--- that message. The host asks for news once all edits are made, and gets later ones with later requests, until the
--- watch expires.
---
--- Servers do not report which version of the text they describe in a way that Neovim keeps, nor when they are done. So
--- each server that usually reports something has one second to begin, and counts as done when nothing came for a
--- while. Neovim drops empty reports, so a server that has never reported anything is waited for once.
---
--- Only loaded buffers are watched. Loading one for this would run the user's hooks on a file that they have not
--- opened, and servers outside the sandbox would run what its project configures.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local door = require('sanderling.host.door')
local known = require('sanderling.editing.known')
local reported = require('sanderling.editing.reported')
local reviews = require('sanderling.editing.reviews')
local time = require('sanderling.ui.time')
local undo = require('sanderling.editing.undo')

local METHOD = 'textDocument/diagnostic'
local FIRST_MS, SETTLE_MS, POLL_MS = 1000, 300, 20
local LATE_MS = 150 -- later than this the host has stopped waiting
local COLD_MS = 5000 -- the first reports of a server that has just got the buffer are old
local TYPED_MS = 2000 -- reports on typed text have come by then
local EXPIRES_MS = 60000
local UNSENT_MS = 500 -- Neovim sends a change after 'debounce_text_changes', 150 ms
local REPORT_MS = 5000 -- for a report that the model requests
local MAX_TOLD = 500

---@class (exact) sanderling.editing.diagnostics.Edit of a buffer
---@field reports integer that came since
---@field pulling integer reports requested, not yet received
---@field last? number when the last one came

---@class (exact) sanderling.editing.diagnostics.Watch
---@field began number
---@field known table<integer, sanderling.editing.known.Entry[]> by buffer
---@field edits table<integer, sanderling.editing.diagnostics.Edit> by buffer
---@field typed table<integer, true> buffers that the user has changed: reports on them may be due to that

---@type table<string, sanderling.editing.diagnostics.Watch>
local watches = {}

---@type table<integer, table<integer, number>> when clients got buffers, by buffer and client, until their first report
local attached = {}

---@type table<integer, number> when the user typed in a buffer, until the next report on it
local typed_at = {}

---@type table<integer, true> clients that have reported something
local has_spoken = {}

---@type table<integer, true> clients that were waited for in vain
local is_mute = {}

---@class (exact) sanderling.editing.diagnostics.Pending reports on a buffer that the agent has edited
---@field began number
---@field is_sent boolean Neovim has sent the change to the servers
---@field reports integer that came since
---@field last? number when the last one came

---@type table<integer, sanderling.editing.diagnostics.Pending> by buffer
local pending = {}

---@type table<integer, true> clients that did not report on an edit in time: they may do so only after a write
local is_late = {}

-- reports -------------------------------------------------------------------------------------------------------------

---@param buf? integer nil: all
---@return vim.Diagnostic[]
local function said(buf)
  local least = config.options.diagnostics == 'warnings' and 'WARN' or 'ERROR'
  return vim.diagnostic.get(buf, { severity = { min = vim.diagnostic.severity[least] } })
end

-- servers -------------------------------------------------------------------------------------------------------------

--- Return the clients of the buffer, without loading `vim.lsp` where no language server runs.
---@param buf integer
---@return vim.lsp.Client[]
local function clients_of(buf)
  return package.loaded['vim.lsp'] and vim.lsp.get_clients({ bufnr = buf }) or {}
end

--- Return the servers to wait for until the buffer is settled.
---@param buf integer
---@return integer expected reports, without requested ones
---@return vim.lsp.Client[] silent clients, which may never report anything
local function expected(buf)
  local count, silent = 0, {}
  for _, client in ipairs(clients_of(buf)) do
    local pushes = not (client:is_stopped() or client:supports_method(METHOD, buf))
    if pushes and has_spoken[client.id] then
      count = count + 1
    elseif pushes and not is_mute[client.id] then
      silent[#silent + 1] = client
    end
  end
  return count, silent
end

---@param client vim.lsp.Client
---@return boolean
local function is_indexing(client)
  return next(client.progress.pending) ~= nil
end

--- Has the server just got the buffer, or is it still reading the project? Then its first report is old.
---@param client vim.lsp.Client
---@param since number
---@return boolean
local function is_cold(client, since)
  return is_indexing(client) or time.now_ms() - since < COLD_MS
end

---@param client vim.lsp.Client
---@param diagnostics vim.Diagnostic[]
---@return vim.Diagnostic[] its own, pushed or pulled
local function said_by(client, diagnostics)
  local name = ('lsp.%s.%d'):format(client.name, client.id)
  return vim.tbl_filter(function(diagnostic)
    local ns = vim.diagnostic.get_namespace(diagnostic.namespace).name
    return ns:sub(-#name) == name or ns:find(name .. '.', 1, true) ~= nil
  end, diagnostics)
end

--- Note reports of clients. The first one on a buffer that a client has just got is not caused by an edit.
---@param buf integer
---@param diagnostics vim.Diagnostic[]
local function hear(buf, diagnostics)
  for _, client in ipairs(clients_of(buf)) do
    local since = (attached[buf] or {})[client.id]
    if since or not has_spoken[client.id] then
      local own = said_by(client, diagnostics)
      has_spoken[client.id] = has_spoken[client.id] or #own > 0 or nil
      if since and is_cold(client, since) then
        for _, watch in pairs(watches) do
          known.add(watch.known, own)
        end
      end
      if since and not is_indexing(client) and (#own > 0 or not is_cold(client, since)) then
        attached[buf][client.id] = nil
      end
    end
  end
end

local group = api.nvim_create_augroup('sanderling_diagnostics', {})

---@param events string[]
---@param callback fun(event: vim.api.keyset.create_autocmd.callback_args)
local function on(events, callback)
  api.nvim_create_autocmd(events, { group = group, callback = callback })
end

on({ 'DiagnosticChanged' }, function(event)
  local buf = event.buf
  typed_at[buf] = nil
  hear(buf, event.data.diagnostics)
  for _, watch in pairs(watches) do
    local edit = watch.edits[buf]
    if edit then
      edit.reports, edit.last = edit.reports + 1, time.now_ms()
    end
  end
  local report = pending[buf]
  if report and report.is_sent then -- what came before is about the old text
    report.reports, report.last = report.reports + 1, time.now_ms()
  end
end)

on({ 'LspNotify' }, function(event)
  local document = event.data.method == 'textDocument/didChange' and event.data.params.textDocument
  for buf, report in pairs(document and pending or {}) do
    if vim.uri_from_bufnr(buf) == document.uri then
      report.is_sent, report.reports, report.last = true, 0, nil
    end
  end
end)

on({ 'LspAttach' }, function(event)
  attached[event.buf] = attached[event.buf] or {}
  attached[event.buf][event.data.client_id] = time.now_ms()
end)

on({ 'BufWipeout' }, function(event)
  attached[event.buf], typed_at[event.buf], pending[event.buf] = nil, nil, nil
  for _, watch in pairs(watches) do
    watch.edits[event.buf] = nil
  end
end)

on({ 'TextChanged', 'TextChangedI', 'TextChangedP' }, function(event)
  local buf = event.buf
  local is_typed = not undo.untouched_change(buf) and not reviews.now.is_as_proposed(buf)
  if is_typed and next(clients_of(buf)) then
    typed_at[buf] = time.now_ms()
    for _, watch in pairs(watches) do
      watch.typed[buf] = true
    end
  end
end)

for _, diagnostic in ipairs(said()) do -- reported before this module was loaded
  hear(assert(diagnostic.bufnr), { diagnostic })
end

-- questions -----------------------------------------------------------------------------------------------------------

--- Can an edit of the buffer cause diagnostics to report to the model?
---@param buf integer
---@return boolean
function M.can_come(buf)
  return config.options.diagnostics ~= 'off' and #clients_of(buf) > 0
end

--- Start watching a buffer that is about to be edited: the current diagnostics are not new.
---@param buf integer
---@param id string of the watch; the first edit begins it
---@return boolean is_watched
local function begin_watch(buf, id)
  if not M.can_come(buf) then
    return false
  end
  for each, watch in pairs(watches) do
    if each ~= id and time.now_ms() - watch.began > EXPIRES_MS then
      known.forget(watch.known)
      watches[each] = nil
    end
  end
  local watch = watches[id]
  if not watch then
    watch = { began = time.now_ms(), known = {}, edits = {}, typed = {} }
    known.add(watch.known, said())
    watches[id] = watch
  end
  watch.began = time.now_ms()
  for each, at in pairs(typed_at) do
    if time.now_ms() - at < TYPED_MS then
      watch.typed[each] = true
    end
  end
  -- A proposal already in the buffer does not change the text again, so no new report comes.
  pending[buf] = { began = time.now_ms(), is_sent = false, reports = 0 }
  local is_told = watch.edits[buf] and reviews.now.is_as_proposed(buf)
  watch.edits[buf] = is_told and watch.edits[buf] or { reports = 0, pulling = 0 }
  return true
end

--- Return the buffers that the agent has edited, and on whose text servers have perhaps not reported yet.
---@return integer[]
function M.pending()
  return vim.tbl_keys(pending)
end

--- Is a report on the text after the agent's last edit still to come? Servers that only report on request are not waited for.
---@param buf integer
---@param asked_ms number when the model requested it
---@return boolean
function M.is_to_come(buf, asked_ms)
  local report, now = pending[buf], time.now_ms()
  if not report then
    return false
  end
  local count, silent = expected(buf)
  local least = math.max(count, math.min(#silent, 1))
  local is_whole = report.reports >= least and (not report.last or now >= report.last + SETTLE_MS)
  if least == 0 or report.is_sent and is_whole then
    pending[buf] = nil
    return false
  elseif not report.is_sent then
    return now < math.max(report.began, asked_ms) + UNSENT_MS -- nothing may have changed
  end
  local is_usual = vim.iter(clients_of(buf)):any(function(client)
    return has_spoken[client.id] and not is_late[client.id]
  end)
  return now < asked_ms + (is_usual and REPORT_MS or FIRST_MS)
end

--- Return the names of the servers that have not reported on the agent's last edit of the buffer. They are not waited for as long again.
---@param buf integer
---@return string[]
function M.missing(buf)
  local report, names = pending[buf], {}
  if not (report and report.is_sent) then
    return names
  end
  for _, client in ipairs(clients_of(buf)) do
    if has_spoken[client.id] and not client:supports_method(METHOD, buf) then
      is_late[client.id] = true
      names[#names + 1] = client.name
    end
  end
  return names
end

--- Request diagnostics from servers that only report on request; Neovim requests them only for visible buffers.
---@param watch sanderling.editing.diagnostics.Watch
local function pull(watch)
  for buf, edit in pairs(watch.edits) do
    for _, client in ipairs(clients_of(buf)) do
      if client:supports_method(METHOD, buf) then
        local provider = client.server_capabilities.diagnosticProvider
        local params = {
          textDocument = vim.lsp.util.make_text_document_params(buf),
          identifier = type(provider) == 'table' and provider.identifier or nil,
        }
        local is_sent = client:request(METHOD, params, function(...)
          edit.pulling, edit.last = edit.pulling - 1, time.now_ms()
          return (client.handlers[METHOD] or vim.lsp.handlers[METHOD])(...)
        end, buf)
        edit.pulling = edit.pulling + (is_sent and 1 or 0)
      end
    end
  end
end

--- Have the servers of the edited buffers reported?
---@param watch sanderling.editing.diagnostics.Watch
---@param asked_ms number
---@return boolean
local function is_settled(watch, asked_ms)
  local now = time.now_ms()
  for buf, edit in pairs(watch.edits) do
    local count, silent = expected(buf)
    local least = math.max(count, math.min(#silent, 1))
    local is_missing = edit.reports < least or edit.pulling > 0
    if #clients_of(buf) > 0 and is_missing and now < asked_ms + FIRST_MS then
      return false
    elseif edit.last and now < edit.last + SETTLE_MS then
      return false
    end
    for _, client in ipairs(edit.reports == 0 and silent or {}) do
      is_mute[client.id] = true
    end
  end
  return true
end

--- Return the diagnostics that are new to `watch`. Diagnostics of files that the user or another session has changed may be
--- due to that, as may those in other files.
---@param watch sanderling.editing.diagnostics.Watch
---@param by_buf table<integer, vim.Diagnostic[]>
---@param others table<integer, true> buffers that other sessions have edited
---@return vim.Diagnostic[]
local function new_to(watch, by_buf, others)
  local found = {}
  for buf, diagnostics in pairs(by_buf) do
    local is_elsewhere = not watch.edits[buf] and (others[buf] or next(watch.typed) ~= nil)
    if not (is_elsewhere or watch.typed[buf]) then
      vim.list_extend(found, known.others(buf, diagnostics, watch.known[buf] or {}))
    end
  end
  return found
end

---@param ids string[] of watches
---@return sanderling.editing.Diagnostic[] diagnostics that none of them has returned yet
local function take_new(ids)
  local by_buf = {} ---@type table<integer, vim.Diagnostic[]>
  for _, diagnostic in ipairs(said()) do
    local buf = assert(diagnostic.bufnr)
    by_buf[buf] = by_buf[buf] or {}
    table.insert(by_buf[buf], diagnostic)
  end
  local is_in_edit, others = {}, {} ---@type table<integer, true>, table<integer, true>
  for id, watch in pairs(watches) do
    for buf in pairs(watch.edits) do
      (vim.list_contains(ids, id) and is_in_edit or others)[buf] = true
    end
  end
  local found = {} ---@type table<vim.Diagnostic, true>
  for _, id in ipairs(ids) do
    for _, diagnostic in ipairs(watches[id] and new_to(watches[id], by_buf, others) or {}) do
      found[diagnostic] = true
    end
  end
  local fresh = vim.tbl_keys(found) ---@type vim.Diagnostic[]
  reported.sort(fresh, function(each)
    return { is_in_edit[each.bufnr] and 0 or 1, each.severity, each.bufnr, each.lnum, each.col }
  end)
  for _, id in ipairs(ids) do
    if watches[id] then
      known.add(watches[id].known, fresh)
    end
  end
  return vim.tbl_map(function(diagnostic)
    return reported.as_told(diagnostic, is_in_edit[diagnostic.bufnr] or false)
  end, vim.list_slice(fresh, 1, MAX_TOLD))
end

--- Answer with the new diagnostics, if it `waits` once the buffers of the last watch have settled: after little more
--- than a second at most.
---@param reply fun(answer: sanderling.host.door.Answer)
---@param _ sanderling.host.door.Call
---@param ids string[] of watches
---@param waits boolean
local function begin_telling(reply, _, ids, waits)
  local asked_ms, watch = time.now_ms(), watches[ids[#ids]]
  local function tell()
    if watch and waits and time.now_ms() < asked_ms + FIRST_MS + SETTLE_MS then
      if not is_settled(watch, asked_ms) then
        return vim.defer_fn(tell, POLL_MS)
      end
    end
    local is_heard = time.now_ms() < asked_ms + FIRST_MS + SETTLE_MS + LATE_MS
    local ok, found = pcall(take_new, is_heard and ids or {})
    reply(ok and { value = found } or { error = tostring(found) })
  end
  if watch and waits then
    pull(watch)
  end
  tell()
end

--- The entry point for requests that need an answer.
M.answer = door.serve({
  watch = { answer = begin_watch },
  tell_new = { begin = begin_telling },
})

return M
