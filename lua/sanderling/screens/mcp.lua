--- :Agent mcp: a session's MCP servers, their states, and keys to start and stop them. The list follows the session's state.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')
local ask = require('sanderling.host.ask')
local bus = require('sanderling.host.bus')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local links = require('sanderling.access.links')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local parsing = require('sanderling.access.parsing')
local picker = lazy('sanderling.picker')
local scratch = require('sanderling.ui.scratch')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local INDENT = '    '
local MAX_CELLS = 70 -- of the lines below a name
local MARGIN = 6 -- free columns
local NAMED = {
  { 'mcp_show', 'details' },
  { 'mcp_start', 'restart' },
  { 'mcp_stop', 'disable' },
  { 'mcp_login', 'log in' },
  { 'close', 'close' },
}
local ns = api.nvim_create_namespace('sanderling_mcp')

---@type table<string, string> of servers, by state
local highlights = {
  ready = 'AgentBusy',
  failed = 'AgentError',
  restarting = 'AgentWarning',
}

---@class (exact) sanderling.screens.mcp.Page
---@field buf integer
---@field win integer
---@field session_id string
---@field names table<integer, string> of the servers, by lnum

---@type sanderling.screens.mcp.Page?
local shown

-- text ----------------------------------------------------------------------------------------------------------------

---@param state string
---@return string
local function sign_of(state)
  if state == 'ready' then
    return icons.passed
  elseif state == 'failed' then
    return icons.failed
  elseif state == 'stopped' then
    return icons.held
  end
  return icons.in_progress
end

---@param server sanderling.ToolServer
---@return string what it offers
local function offer_of(server)
  local parts = {}
  for _, each in ipairs({
    { 'tools', 'tool' },
    { 'prompts', 'prompt' },
    { 'resources', 'resource' },
  }) do
    local count = #(server[each[1]] or {})
    parts[#parts + 1] = count > 0 and words.counted(count, each[2]) or nil
  end
  return table.concat(parts, ', ')
end

---@param server sanderling.ToolServer
---@return string
local function facts_of(server)
  local facts = { server.state, server.era, offer_of(server) }
  if server.is_projects then
    facts[#facts + 1] = "the project's"
  end
  return table.concat(
    vim.tbl_filter(function(fact)
      return fact and fact ~= ''
    end, facts),
    icons.separator
  )
end

---@param servers sanderling.ToolServer[]
---@return fun(server: sanderling.ToolServer): string with the names in a column
local function line_in(servers)
  local width = 0
  for _, server in ipairs(servers) do
    width = math.max(width, api.nvim_strwidth(words.plain(server.name)))
  end
  return function(server)
    local name = words.plain(server.name)
    local padded = name .. (' '):rep(width - api.nvim_strwidth(name))
    return ('%s %s  %s'):format(sign_of(server.state), padded, facts_of(server))
  end
end

---@param servers sanderling.ToolServer[]
---@return string[] lines
---@return table<integer, string> names of the servers, by lnum
---@return sanderling.access.page.Mark[] marks
local function text_of(servers)
  local lines, names, marks, line_of = {}, {}, {}, line_in(servers)
  local room = math.max(1, math.min(MAX_CELLS, vim.o.columns - MARGIN - #INDENT))
  local function add(line, server, hl)
    lines[#lines + 1] = line
    names[#lines] = server.name
    marks[#marks + 1] = { row = #lines - 1, end_col = #line, hl = hl }
  end
  for _, server in ipairs(servers) do
    add(line_of(server), server, highlights[server.state] or 'AgentStatus')
    add(INDENT .. words.fitting(words.plain(server.place), room), server, 'AgentStatus')
    for _, each in ipairs(words.wrapped(words.plain(server.why or ''), room)) do
      add(INDENT .. each, server, 'AgentWarning')
    end
  end
  return lines, names, marks
end

--- Draw the current list; the cursor stays on its server.
local function fill()
  local self = assert(shown)
  local here = self.names[vim.fn.line('.', self.win)]
  local lines, names, marks = text_of(live.state_of(self.session_id).tool_servers)
  page.write(self.buf, ns, lines, marks)
  self.names = names
  page.fit_height(self.win)
  for lnum in vim.spairs(names) do
    if names[lnum] == here then
      api.nvim_win_set_cursor(self.win, { lnum, 0 })
      return
    end
  end
end

-- keys ----------------------------------------------------------------------------------------------------------------

---@param fn fun(server: sanderling.ToolServer)
---@return fun()
local function with_server(fn)
  return function()
    local self = assert(shown)
    local name = self.names[vim.fn.line('.')]
    for _, server in ipairs(live.state_of(self.session_id).tool_servers) do
      if server.name == name then
        return fn(server)
      end
    end
  end
end

---@param session_id string
---@param name string of the server
---@param what 'start'|'stop'|'login'
local function control(session_id, name, what)
  live.act(session_id, { type = 'control_tool_server', name = name, what = what })
end

---@param what 'start'|'stop'|'login'
---@return fun()
local function controlling(what)
  return with_server(function(server)
    control(assert(shown).session_id, server.name, what)
  end)
end

--- Show what a server offers, and its log.
---@param session sanderling.chat.session.Session
---@param server sanderling.ToolServer
local function show_details(session, server)
  session:ask({ type = 'show_tool_server', name = server.name }, function(found, is_here)
    if is_here then
      local lines = words.lines_of(unseen.visible(found.text))
      local buf, win = page.view(found.title, lines, 'tool server')
      scratch.set_win_options(win, { conceallevel = 2 })
      parsing.start(buf)
    end
  end)
end

local show = with_server(function(server)
  local session = live.find(assert(shown).session_id)
  if session then
    show_details(session, server)
  end
end)

---@param session_id string
---@param servers sanderling.ToolServer[]
local function open(session_id, servers)
  local lines, names = text_of(servers)
  local buf, win = page.view('Tool servers', lines, 'tool servers', {
    place = 'mcp',
    footer = float.naming(NAMED),
    on_close = function()
      shown = nil
    end,
    actions = {
      mcp_show = show,
      mcp_start = controlling('start'),
      mcp_stop = controlling('stop'),
      mcp_login = controlling('login'),
    },
  })
  shown = { buf = buf, win = win, session_id = session_id, names = names }
  fill()
end

--- Let the user choose a server in a picker plugin. Without one show the page, which has keys and follows the states.
---@param session sanderling.chat.session.Session
---@param servers sanderling.ToolServer[]
local function choose(session, servers)
  local function controlled(what)
    return function(server)
      control(session.id, server.name, what)
    end
  end
  picker.choose(servers, {
    title = 'Tool servers',
    kind = 'sanderling_tool_server',
    line_of = line_in(servers),
    preview = function(server, on_text)
      local request = { type = 'show_tool_server', session_id = session.id, name = server.name }
      ask(request, function(found)
        on_text(unseen.visible(found.text))
      end, on_text)
    end,
    actions = {
      {
        name = 'Show',
        run = function(server)
          show_details(session, server)
        end,
      },
      { name = 'Restart', key = { 'pick_start', 'restart' }, run = controlled('start') },
      { name = 'Disable', key = { 'pick_stop', 'disable' }, run = controlled('stop') },
      { name = 'Log in', key = { 'pick_login', 'log in' }, run = controlled('login') },
    },
    otherwise = function()
      open(session.id, servers)
    end,
  })
end

--- Show the MCP servers of a session.
---@param session sanderling.chat.session.Session
function M.show(session)
  session:ask({ type = 'list_tool_servers' }, function(found, is_here)
    if #found.servers == 0 then
      message.tell('No tool servers configured, see :help sanderling-mcp.')
    elseif not is_here then
      message.tell('Tool servers loaded. Run :Agent mcp again to show them.')
    elseif shown and shown.session_id == session.id then
      api.nvim_set_current_win(shown.win)
    else
      if shown then
        api.nvim_buf_delete(shown.buf, { force = true })
      end
      choose(session, found.servers)
    end
  end)
end

bus.subscribe('tool_servers_changed', function(session_id)
  if shown and shown.session_id == session_id then
    fill()
  end
end)

bus.subscribe('link_offered', function(session_id, event)
  local session = live.find(session_id)
  if session then
    session:say('info', ('%s\n%s'):format(event.text, event.url)) -- can be copied if no browser opens
    links.open(event.url)
  end
end)

bus.subscribe('local_closed', function(session_id)
  if shown and shown.session_id == session_id then
    api.nvim_buf_delete(shown.buf, { force = true })
  end
end)

return M
