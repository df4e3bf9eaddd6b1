--- A session as plugins see it. It names a session by its id, so that it stays valid while buffers and windows change.
local M = {}

local bus = require('sanderling.host.bus')
local lazy = require('sanderling.ui.lazy')

local events = lazy('sanderling.extend.events')
local live = require('sanderling.session.live')
local messages = lazy('sanderling.extend.messages')
local registry = lazy('sanderling.extend.registry')
local states = require('sanderling.session.state')
local stored = lazy('sanderling.session.stored')

---@class sanderling.Session
---@field id string
---@field title string empty if unset
---@field mode 'ask'|'auto'|'plan'
---@field project string path of the project's root; empty once the session is closed
---@field is_open boolean false once the session is closed
---@field is_busy boolean a turn or command is running or queued
local Session = {}

---@type table<string, sanderling.Session> by id, while someone has them
local known = setmetatable({}, { __mode = 'v' })

--- Shows a stored session; set by the chat.
---@type fun(id: string, project: string, opts: table): table
local show

---@param fn fun(id: string, project: string, opts: table): table shows a stored session
function M.register(fn)
  show = fn
end

---@type table<string, fun(session_id: string): any>
local fields = {}

function fields.title(session_id)
  return live.state_of(session_id).title
end

function fields.mode(session_id)
  return live.state_of(session_id).mode
end

function fields.project(session_id)
  local session = live.find(session_id)
  return session and session.project or ''
end

function fields.is_open(session_id)
  return live.find(session_id) ~= nil
end

function fields.is_busy(session_id)
  return states.is_busy(live.state_of(session_id))
end

local class = {
  __index = function(self, key)
    local field = fields[key]
    if field then
      return field(rawget(self, 'id'))
    end
    return Session[key]
  end,
  __newindex = function(_, key)
    error(("sanderling.Session: '%s' cannot be set."):format(key), 2)
  end,
}

---@param session_id string
---@return sanderling.Session
function M.of(session_id)
  local session = known[session_id] or setmetatable({ id = session_id }, class)
  known[session_id] = session
  return session
end

---@return sanderling.Session?
function M.current()
  local session = live.current()
  return session and M.of(session.id)
end

--- Return the sessions that the chat can show, in the order of the keys that switch between them.
---@return sanderling.Session[]
function M.all()
  return vim.tbl_map(function(session)
    return M.of(session.id)
  end, live.chats())
end

--- Check the argument `name` of a method.
---@param name string
---@param value any
---@param expected string
---@param is_optional? boolean
local function check(name, value, expected, is_optional)
  if type(value) ~= expected and not (is_optional and value == nil) then
    local text = 'sanderling.Session: %s must be a %s, got %s.'
    error(text:format(name, expected, type(value)), 0)
  end
end

---@param self sanderling.Session
---@return sanderling.chat.session.Session
local function open_one(self)
  local session = live.find(self.id)
  return session or error(('sanderling.Session: the session %s is closed.'):format(self.id), 0)
end

---@param self sanderling.Session
---@param text string
---@param opts? { is_steering?: boolean }
---@return boolean
local function send(self, text, opts)
  local session = open_one(self)
  check('text', text, 'string')
  return session:send(vim.split(text, '\n', { plain = true }), opts)
end

--- Send `text` to the model. During a turn it is queued.
---@param text string
---@return boolean is_sent if not, the transcript says why
function Session:send(text)
  return send(self, text)
end

--- Send `text` to the model during its turn. Without a turn it is a normal prompt.
---@param text string
---@return boolean is_sent if not, the transcript says why
function Session:steer(text)
  return send(self, text, { is_steering = true })
end

--- Stop the turn, or the latest command.
function Session:stop()
  open_one(self):stop()
end

--- Return the last messages that the transcript shows, oldest first.
---@param opts? { count?: integer } default all
---@return sanderling.Message[] messages
---@return boolean has_earlier `load_earlier` loads others
function Session:messages(opts)
  if opts ~= nil then
    registry.check_names('Session:messages', opts, { count = true })
  end
  local count = opts and opts.count
  vim.validate('opts.count', count, function(value)
    return value == nil or type(value) == 'number' and value >= 1
  end, 'a number from 1 on')
  return messages.of(self.id, count), open_one(self).transcript.has_earlier
end

--- Load an earlier page of the history into the transcript, then call `done`.
---@param done fun(is_loaded: boolean) false: there was none, or it could not be loaded
function Session:load_earlier(done)
  local transcript = open_one(self).transcript
  check('done', done, 'function')
  local owner, is_done = { origin = registry.origin() }, false
  local function finish(is_loaded)
    if not is_done then
      is_done = true
      registry.call(owner, 'load_earlier()', done, is_loaded)
    end
  end
  if not transcript.has_earlier then
    return vim.schedule_wrap(finish)(false)
  end
  messages.when_page(self.id, finish)
  transcript:ask_for_earlier()
  if not transcript.is_asking then -- the transcript says why
    vim.schedule_wrap(finish)(false)
  end
end

--- Call `fn` at each event of a type in this session, after it was drawn, until the session is closed.
---@param type string
---@param fn fun(event: any, session: sanderling.Session)
---@return sanderling.Handle
function Session:on(type, fn)
  return events.add(type, fn, open_one(self).id)
end

--- Copy the session, and show the copy. An error is shown to the user.
---@param done? fun(copy: sanderling.Session)
function Session:fork(done)
  local owner, session = { origin = registry.origin() }, open_one(self)
  check('done', done, 'function', true)
  stored.fork(session, nil, function(new)
    show(new.id, new.project, { focus = false })
    if done then
      registry.call(owner, 'fork()', done, M.of(new.id))
    end
  end)
end

-- `session.send('…')` would pass the text as the session.
for name, method in pairs(Session) do
  Session[name] = function(self, ...)
    if getmetatable(self) ~= class then
      error(('sanderling.Session: call it with a colon: session:%s().'):format(name), 0)
    end
    return method(self, ...)
  end
end

bus.subscribe('local_closed', function(session_id)
  if package.loaded['sanderling.extend.events'] then
    events.forget(session_id)
  end
end)

return M
