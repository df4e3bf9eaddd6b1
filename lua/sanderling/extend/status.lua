--- Parts that plugins add to the statusline and the chat's bars, or replace there.
local M = {}

local lazy = require('sanderling.ui.lazy')

local registry = require('sanderling.extend.registry')
local sessions = lazy('sanderling.extend.session')
local words = lazy('sanderling.ui.words')

local FRESH_MS = 1000 -- a text is computed again after that, or when the session's state changes

M.BUILT_IN = {
  'activity',
  'children',
  'effort',
  'jobs',
  'mode',
  'model',
  'queue',
  'role',
  'sandbox',
  'servers',
  'title',
  'unreviewed',
  'usage',
  'worktree',
}

---@alias sanderling.StatusPart fun(status: sanderling.Status, session: sanderling.Session): string?

---@class (exact) sanderling.extend.status.Part: sanderling.extend.registry.Named
---@field fn sanderling.StatusPart|false
---@field texts table<table, { state: table, at_ms: number, text?: string }> by session

local parts = registry.names('statusline')

local function redraw()
  vim.schedule(function()
    vim.cmd.redrawstatus({ bang = true })
  end)
end

---@param name any
---@param fn any
local function check(name, fn)
  registry.check_name('statusline', name, {})
  if fn == false and not vim.list_contains(M.BUILT_IN, name) then
    local known = table.concat(M.BUILT_IN, ', ')
    registry.refuse('statusline', "there is no part '%s' to hide. Use one of %s.", name, known)
  elseif fn ~= false and not vim.is_callable(fn) then
    local text = "the part '%s' must be a function or false, not a %s."
    registry.refuse('statusline', text, name, type(fn))
  end
end

--- Add parts, or replace built-in ones. `false` hides a part.
---@param given table<string, sanderling.StatusPart|false>
---@return sanderling.Handle
function M.add(given)
  if type(given) ~= 'table' or next(given) == nil then
    registry.refuse(
      'statusline',
      'expected a table of functions by name, got %s.',
      vim.inspect(given)
    )
  end
  local origin, handles, names = registry.origin(), {}, vim.tbl_keys(given)
  for _, name in ipairs(names) do
    check(name, given[name])
  end
  table.sort(names)
  local function remove()
    for _, handle in ipairs(handles) do
      handle:remove()
    end
    redraw()
  end
  for _, name in ipairs(names) do
    local part = {
      name = name,
      origin = origin,
      is_frequent = true,
      fn = given[name],
      texts = setmetatable({}, { __mode = 'k' }),
    }
    local ok, handle = pcall(parts.add, parts, part)
    if not ok then
      remove()
      error(handle, 0)
    end
    handles[#handles + 1] = handle
  end
  redraw()
  return registry.handle(remove)
end

---@param part sanderling.extend.status.Part
---@param session sanderling.chat.session.Session
---@param status_of fun(session: sanderling.chat.session.Session): sanderling.Status
---@return string? text nil after an error
local function text_of(part, session, status_of)
  if not part.fn then
    return ''
  end
  local last, now_ms = part.texts[session], vim.uv.now()
  if not last or last.state ~= session.state or now_ms - last.at_ms > FRESH_MS then
    last = { state = session.state, at_ms = now_ms }
    part.texts[session] = last
    local subject = ("statusline part '%s'"):format(part.name)
    local ok, text =
      registry.call(part, subject, part.fn, status_of(session), sessions.of(session.id))
    if ok and not vim.list_contains({ 'nil', 'string', 'number' }, type(text)) then
      registry.report(part, subject, ('expected a text, got a %s'):format(type(text)))
    elseif ok then
      last.text = words.plain((tostring(text or ''):gsub('\n.*', '')))
    end
  end
  return last.text
end

--- Return the text that replaces a built-in part, nil if none does.
---@param name string
---@param session sanderling.chat.session.Session
---@param status_of fun(session: sanderling.chat.session.Session): sanderling.Status
---@return string?
function M.text(name, session, status_of)
  local part = parts:find(name)
  return part and text_of(part, session, status_of)
end

--- Return the texts of the parts that are not built in.
---@param session sanderling.chat.session.Session
---@param status_of fun(session: sanderling.chat.session.Session): sanderling.Status
---@return string[]
function M.added(session, status_of)
  local texts = {}
  for _, part in ipairs(parts.list) do
    if not vim.list_contains(M.BUILT_IN, part.name) then
      local text = text_of(part, session, status_of)
      texts[#texts + 1] = text ~= '' and text or nil
    end
  end
  return texts
end

return M
