--- The rows of the list of sessions: the open ones with their state, and the stored ones. Children follow their parents.
local M = {}

local children = require('sanderling.transcript.blocks.child')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local queue = require('sanderling.approval.queue')
local states = require('sanderling.session.state')
local status = require('sanderling.status')
local stored = require('sanderling.session.stored')
local usage = require('sanderling.status.usage')
local words = require('sanderling.ui.words')

---@class sanderling.screens.session_list.Entry: sanderling.SessionInfo
---@field session? sanderling.chat.session.Session if it is open here
---@field child? sanderling.ChildChanged if its parent is open here
---@field is_below boolean its parent is in the list

local WAITING, RUNNING, AT_REST = 1, 2, 3

-- their state ---------------------------------------------------------------------------------------------------------

--- Return the first pending question of a session.
---@param entry sanderling.screens.session_list.Entry
---@return sanderling.session.state.Question?
---@return integer? index in the queue
function M.question_of(entry)
  for i, q in ipairs(queue.list()) do
    if (queue.child_of(q.event) or q.session_id) == entry.id then
      return q, i
    end
  end
end

---@param entry sanderling.screens.session_list.Entry
---@return boolean something can be stopped
function M.is_running(entry)
  local is_active = entry.child ~= nil and states.is_active[entry.child.state] ~= nil
  return is_active or entry.session ~= nil and states.is_busy(entry.session.state)
end

---@param entry sanderling.screens.session_list.Entry
---@return 1|2|3
local function rank_of(entry)
  local needs_user = entry.session and entry.session.state.activity == 'waiting for you'
  if M.question_of(entry) or needs_user or entry.child and entry.child.state == 'waiting' then
    return WAITING
  end
  return M.is_running(entry) and RUNNING or AT_REST
end

--- Return the state of a session in words.
---@param entry sanderling.screens.session_list.Entry
---@return string? nil if it is not open here
local function describe(entry)
  local q = M.question_of(entry)
  if q then
    local title = words.first_line(words.trimmed(q.event.tool .. ' ' .. q.event.title))
    return ('waiting for you: %s'):format(words.plain(title))
  elseif entry.child then
    return children.doing(entry.child)
  end
  return entry.session and status.doing(entry.session.state)
end

-- entries -------------------------------------------------------------------------------------------------------------

---@param session sanderling.chat.session.Session
---@return boolean
local function is_listed(session)
  return session.prompt ~= nil and not session.is_fresh or #session.state.questions > 0
end

--- Return the entries in the order of the list: groups of a session and its children, first those that wait for the user, then those
--- that run, then by age.
---@param entries sanderling.screens.session_list.Entry[]
---@return sanderling.screens.session_list.Entry[]
local function in_order(entries)
  local groups, of = {}, {} ---@type table[], table<string, table>
  local by_id = {} ---@type table<string, sanderling.screens.session_list.Entry>
  for _, entry in ipairs(entries) do
    by_id[entry.id] = entry
  end
  for i, entry in ipairs(entries) do
    entry.is_below = by_id[entry.parent or ''] ~= nil
    local row = { entry = entry, rank = rank_of(entry), changed_at = entry.changed_at, index = i }
    local root = entry.is_below and entry.parent or entry.id
    of[root] = of[root] or { rows = {}, rank = AT_REST, changed_at = 0, index = i }
    local group = of[root]
    group.rank, group.changed_at =
      math.min(group.rank, row.rank), math.max(group.changed_at, row.changed_at)
    table.insert(group.rows, entry.is_below and #group.rows + 1 or 1, row)
    if #group.rows == 1 then
      groups[#groups + 1] = group
    end
  end
  local function is_before(a, b)
    if a.rank ~= b.rank then
      return a.rank < b.rank
    elseif a.changed_at ~= b.changed_at then
      return a.changed_at > b.changed_at
    end
    return a.index < b.index
  end
  table.sort(groups, is_before)
  local ordered = {}
  for _, group in ipairs(groups) do
    local below = vim.list_slice(group.rows, 2)
    table.sort(below, is_before)
    ordered[#ordered + 1] = group.rows[1].entry
    for _, row in ipairs(below) do
      ordered[#ordered + 1] = row.entry
    end
  end
  return ordered
end

--- Return the rows for the stored sessions `infos` and the open ones.
---@param infos sanderling.SessionInfo[]
---@param is_search boolean list only `infos`
---@return sanderling.screens.session_list.Entry[]
function M.entries(infos, is_search)
  local entries, by_id = {}, {} ---@type sanderling.screens.session_list.Entry[], table<string, table>
  local function take(info)
    local entry = by_id[info.id]
    if not entry and (info.is_stored or not is_search) then
      entry = vim.tbl_extend('keep', info, { parent = '', size_bytes = 0, changed_at = os.time() })
      entry.is_stored = nil
      by_id[info.id], entries[#entries + 1] = entry, entry
    end
    return entry or {}
  end
  for _, info in ipairs(infos) do
    take(vim.tbl_extend('error', info, { is_stored = true }))
  end
  for _, session in ipairs(vim.tbl_filter(is_listed, live.all())) do
    local state = session.state
    local info = { id = session.id, project = session.project, title = state.title }
    local entry = take(vim.tbl_extend('error', info, { parent = state.parent }))
    entry.session = session
    for _, child in ipairs(state.children) do
      if by_id[child.id] or states.is_active[child.state] then
        info = { id = child.id, project = session.project, title = child.task, parent = session.id }
        take(info).child = child
      end
    end
  end
  return in_order(entries)
end

-- lines ---------------------------------------------------------------------------------------------------------------

--- Return when a session began, from its id: `21 Nov 18:30`.
---@param id string
---@return string
local function beginning_of(id)
  local year, month, day, hour, min = id:match('^(%d%d%d%d)(%d%d)(%d%d)%-(%d%d)(%d%d)')
  if not year then
    return id
  end
  local at = os.time({ year = year, month = month, day = day, hour = hour, min = min })
  return tostring(os.date('%d %b %H:%M', at))
end

---@param entry sanderling.screens.session_list.Entry
---@return string
local function name_of(entry)
  local child, name = entry.child, stored.name_of(entry)
  if child and entry.title == child.task then -- it has no title yet
    return ('%s: %s'):format(words.plain(child.name), name)
  end
  return name
end

--- Return the model or agent of an open session, and its tokens and cost.
---@param entry sanderling.screens.session_list.Entry
---@return string[]
local function facts_of(entry)
  local state = entry.session and entry.session.state
  if not state then
    return { entry.child and children.counts(entry.child) or nil }
  end
  local answers = state.agent ~= '' and state.agent or state.model
  local facts = { answers ~= '' and words.plain(answers) or nil }
  facts[#facts + 1] = state.role and 'role ' .. words.plain(state.role) or nil
  facts[#facts + 1] = state.worktree ~= '' and 'worktree ' .. words.plain(state.worktree) or nil
  facts[#facts + 1] = state.usage and usage.in_all(state.usage) or nil
  return facts
end

--- Return a function that describes each of `entries` in a line. A name that others share is followed by when the session began.
---@param entries sanderling.screens.session_list.Entry[]
---@param is_everywhere boolean
---@return fun(entry: sanderling.screens.session_list.Entry): string
function M.lines_of(entries, is_everywhere)
  local count = {} ---@type table<string, integer> by name
  for _, entry in ipairs(entries) do
    local name = name_of(entry)
    count[name] = (count[name] or 0) + 1
  end
  return function(entry)
    local name = name_of(entry)
    local parts = { name }
    parts[#parts + 1] = count[name] > 1 and 'begun ' .. beginning_of(entry.id) or nil
    parts[#parts + 1] = describe(entry)
    parts[#parts + 1] = stored.age(os.time() - entry.changed_at)
    vim.list_extend(parts, facts_of(entry))
    parts[#parts + 1] = entry.size_bytes > 0 and words.bytes(entry.size_bytes) or nil
    if entry.session then
      parts[#parts + 1] = 'open'
    elseif entry.is_open and not M.is_running(entry) then
      parts[#parts + 1] = 'open elsewhere'
    end
    if is_everywhere then
      parts[#parts + 1] = words.plain(vim.fn.fnamemodify(entry.project, ':~'))
    end
    if (entry.excerpt or '') ~= '' then
      parts[#parts + 1] = icons.quoted(words.plain(entry.excerpt))
    end
    return (entry.is_below and '  ' .. icons.queued .. ' ' or '')
      .. table.concat(parts, icons.separator)
  end
end

return M
