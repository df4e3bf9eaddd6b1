--- The host: the Python process that holds the conversation. Starts it when it is first needed, again after a crash, and is
--- the only one who knows its channel. Everything to it is a notification: Neovim never waits for Python.
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local log = require('sanderling.host.log')

local M = {}

local LAST_WORDS_MS = 50 -- what a host wrote to stderr may arrive after its exit
local BROKEN = 1 -- how Python ends when it cannot import what it is to run
local RUNNING = -1 -- what jobwait() says of a job that has not ended
local ACK_EVERY = 8 -- frames; src/sanderling/editor/frames.py allows 16 undrawn

---@type integer? channel of the running host
local channel
---@type string its interpreter
local host_python = ''
---@type table<string, string> project of each session that is to be open, by session id
local sessions = {}
---@type table<string, string> the agent that was asked for in each, where it is not ours
local agents = {}
---@type table<string, true> sessions that the running host has been told to open
local opened = {}
---@type table<string, true> sessions that a host has opened before: what was said in them is on the screen
local shown = {}
---@alias sanderling.host.OnAnswer fun(result: table) `result.error` says in a sentence what went wrong
---@type table<integer, sanderling.host.OnAnswer> what waits for an answer of the running host, by the request's id
local requests = {}
---@type table<integer, fun(piece: table)> what is told of an answer while it comes, by the request's id
local on_pieces = {}
local last_request = 0
---@type boolean the running host has sent something
local has_answered = false
---@type string? why the host is being ended, when it is
local ending
---@type fun()? tells that the host has ended
local due_report

---@return string root of the plugin's checkout
function M.root()
  return vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':h:h:h:h')
end

---@param environment string
---@return string
local function python_in(environment)
  return vim.fs.joinpath(environment, 'bin', 'python')
end

--- The directory of the Python environment: the checkout's own if it has one, else the one that :AgentInstall builds.
---@return string
function M.environment_dir()
  local own = vim.fs.joinpath(M.root(), '.venv')
  if vim.fn.executable(python_in(own)) == 1 then
    return own
  end
  return vim.fs.joinpath(vim.fn.stdpath('data'), 'sanderling', 'venv')
end

--- A sentence on what to do when the environment is of no use.
---@return string
local function remedy()
  return config.options.python == '' and ':AgentInstall builds it.'
    or "Correct the option 'python', or leave it out and run :AgentInstall."
end

--- The interpreter to run the host with.
---@return string? path
---@return string? error why there is none, and what to do
function M.python()
  local chosen = config.options.python
  if chosen ~= '' then
    local path = vim.fn.exepath(vim.fs.normalize(chosen))
    if path == '' then
      return nil,
        ("The option 'python' names '%s', which cannot be run. %s"):format(chosen, remedy())
    end
    return path
  end
  local path = python_in(M.environment_dir())
  if vim.fn.executable(path) == 1 then
    return path
  end
  return nil, 'The Python environment of Sanderling is not built yet. ' .. remedy()
end

-- The path is set here and not by PYTHONPATH, which is about the person's own programs. Commands get it as it is.
local START = table.concat({
  'import runpy, sys',
  'sys.path.insert(0, sys.argv.pop(1))',
  "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
}, '; ')

--- The command that runs a module of Sanderling's.
---@param python string
---@param module string
---@return string[] argv to which its arguments can be added
function M.argv(python, module)
  return { python, '-E', '-P', '-c', START, vim.fs.joinpath(M.root(), 'src'), module }
end

---@param session_id string
---@param action sanderling.Action
---@return string? error
local function notify(session_id, action)
  if not pcall(vim.rpcnotify, channel, 'sanderling_act', session_id, action) then
    return 'The agent process is just ending. Send the prompt again.'
  end
end

--- Tell the sessions that the running host serves; where none runs, nobody.
---@param action sanderling.Action
function M.tell_open_sessions(action)
  for session_id in pairs(channel and opened or {}) do
    notify(session_id, action)
  end
end

--- The host serves the session no longer.
---@param session_id string
local function forget(session_id)
  if channel and opened[session_id] then
    notify(session_id, { type = 'close_session' })
  end
  opened[session_id] = nil
end

--- The host's way in: draw a frame.
---@param frame sanderling.Frame
function M.receive(frame)
  has_answered = true
  local id = frame.session_id
  if not sessions[id] then
    return -- one that was closed has nothing more to say
  end
  for _, event in ipairs(frame.events) do
    if event.type == 'session_opened' then
      shown[id] = true
    elseif event.type == 'session_in_use' then
      forget(id) -- the next use tries it again
    end
  end
  bus.publish(id, frame.events, frame.seq)
end

---@param request_id integer
---@param result table
local function settle(request_id, result)
  local on_answer = requests[request_id]
  requests[request_id], on_pieces[request_id] = nil, nil
  if on_answer then
    log.guarded(on_answer, result)
  end
end

--- The host's way in: the next piece of an answer that streams.
---@param request_id integer
---@param piece table
function M.streamed(request_id, piece)
  has_answered = true
  if on_pieces[request_id] then
    log.guarded(on_pieces[request_id], piece)
  end
end

--- The host's way in: the answer to a request.
---@param request_id integer
---@param result table
function M.answered(request_id, result)
  has_answered = true
  settle(request_id, result)
end

--- End the host. The next use starts it again.
---@param reason string what the user is told
function M.stop(reason)
  if channel then
    ending = reason
    vim.fn.jobstop(channel)
  end
end

--- The host does not take the settings.
---@param message string
function M.refused(message)
  M.stop('The settings are wrong: ' .. message)
end

--- Frame `seq` is on the screen.
---@param session_id string
---@param seq integer
function M.drawn(session_id, seq)
  if channel and seq % ACK_EVERY == 0 then
    pcall(vim.rpcnotify, channel, 'sanderling_acknowledge', session_id, seq)
  end
end

--- Keep what a host writes to stderr.
---@return fun(_, pieces: string[]) on_stderr each call's first piece continues the last one of the call before
local function stderr_keeper()
  local unfinished = ''
  return function(_, pieces)
    pieces[1] = unfinished .. pieces[1]
    unfinished = table.remove(pieces)
    for _, line in ipairs(pieces) do
      if line ~= '' then
        log.keep(line)
      end
    end
  end
end

--- Say why the host has ended, where it is missed.
---@param code integer
---@param python string
---@param missed string[] the sessions that it served
local function report_exit(code, python, missed)
  due_report = nil
  local message
  if ending then
    message = ending
  elseif not has_answered and code == BROKEN then
    local why = log.lines[#log.lines] or ('exit code ' .. code)
    message = ('The Python environment of %s is broken (%s). %s'):format(python, why, remedy())
  else
    local how = code > 128 and 'signal ' .. code - 128 or 'exit code ' .. code
    message = ('The agent process has ended (%s). The conversation is safe on disk and the next prompt starts it again; :AgentLog tells more.'):format(
      how
    )
  end
  for _, session_id in ipairs(missed) do
    if sessions[session_id] then
      bus.publish(session_id, { { type = 'local_failed', message = message } })
    end
  end
end

---@param id integer channel of the host that has ended
---@param code integer
---@param python string
local function on_exit(id, code, python)
  if channel ~= id then
    return -- its end was noticed before
  end
  channel, opened = nil, {}
  if vim.v.exiting == vim.NIL then
    local missed, unanswered = vim.tbl_keys(sessions), vim.tbl_keys(requests)
    due_report = function()
      report_exit(code, python, missed)
      for _, request_id in ipairs(unanswered) do
        settle(request_id, { error = 'The agent process has ended. Try it again.' })
      end
    end
    vim.defer_fn(M.report_exit_if_due, LAST_WORDS_MS)
  end
end

--- Say now that a host has ended, if that is still to be said: before anything is sent to the next one. Neovim itself may not
--- have noticed yet, and a notification to a dead host is an error.
function M.report_exit_if_due()
  local code = channel and vim.fn.jobwait({ channel }, 0)[1] or RUNNING
  if channel and code ~= RUNNING then
    on_exit(channel, code, host_python)
  end
  if due_report then
    due_report()
  end
end

--- Start the host unless it runs.
---@return string? error why it cannot start
local function start()
  M.report_exit_if_due()
  if channel then
    return
  end
  local python, err = M.python()
  if config.problem or not python then
    return config.problem or err
  end
  pcall(vim.fn.mkdir, vim.fn.stdpath('log'), 'p') -- where it cannot be, the log goes to stderr
  has_answered, ending = false, nil
  local plugin = vim.fs.joinpath(M.root(), 'rplugin', 'python3', 'sanderling_host.py')
  local ok, id
  local argv = vim.list_extend(M.argv(python, 'sanderling.editor'), { plugin })
  ok, id = pcall(vim.fn.jobstart, argv, {
    rpc = true,
    on_stderr = stderr_keeper(),
    on_exit = function(_, code)
      on_exit(id, code, python)
    end,
  })
  if not ok or id <= 0 then
    return ('%s cannot be started. %s'):format(python, remedy())
  end
  channel, host_python = id, python
  vim.rpcnotify(channel, 'sanderling_configure', config.host_settings())
end

--- Make a session known, without starting anything.
---@param session_id string
---@param project string absolute path of the root that it is about
---@param agent? string that answers in a new one, if it is not ours
function M.register(session_id, project, agent)
  sessions[session_id], agents[session_id] = project, agent
end

--- Open a session in the host, starting it when needed. What is sent before it listens waits in the pipe.
---@param session_id string a registered one
---@return string? error
function M.open(session_id)
  local err = start() or not opened[session_id] and config.problem or nil
  if not err and not opened[session_id] then
    opened[session_id] = true
    err = notify(session_id, {
      type = 'open_session',
      project = sessions[session_id],
      agent = agents[session_id],
      wants_history = not shown[session_id],
    })
  end
  return err
end

--- Send an action; `Session:act` tells the error.
---@param session_id string
---@param action sanderling.Action
---@return string? error
function M.act(session_id, action)
  return M.open(session_id) or notify(session_id, action)
end

--- Ask the host something, starting it when needed. The answer comes later, whatever it is.
---@param request sanderling.Request
---@param on_answer sanderling.host.OnAnswer
---@param on_piece? fun(piece: table) told of the answer while it comes, where it streams
---@return integer request_id
function M.request(request, on_answer, on_piece)
  local err = start()
  last_request = last_request + 1
  requests[last_request], on_pieces[last_request] = on_answer, on_piece
  local ok = not err and pcall(vim.rpcnotify, channel, 'sanderling_request', last_request, request)
  if not ok then
    err = err or 'The agent process is just ending. Try it again.'
    vim.schedule_wrap(settle)(last_request, { error = err })
  end
  return last_request
end

--- Stop a request whose answer streams: nothing more is heard of it.
---@param request_id integer
function M.stop_request(request_id)
  if requests[request_id] then
    requests[request_id], on_pieces[request_id] = nil, nil
    pcall(vim.rpcnotify, channel, 'sanderling_stop_request', request_id)
  end
end

---@param session_id string
function M.close(session_id)
  forget(session_id)
  sessions[session_id], agents[session_id], shown[session_id] = nil, nil, nil
end

-- Sessions that are opened from now on take the options as they have become.
config.subscribe(function()
  if channel and not config.problem then
    pcall(vim.rpcnotify, channel, 'sanderling_configure', config.host_settings())
  end
end)

---@return boolean
function M.is_running()
  return channel ~= nil
end

--- Ask the running host for its process id: the one request that waits, for :checkhealth, where a person asked.
---@return boolean ok
---@return integer|string pid_or_error
function M.ping()
  return pcall(vim.rpcrequest, assert(channel, 'not running'), 'sanderling_ping')
end

function M.open_log()
  local path = config.log_file()
  if not vim.uv.fs_stat(path) then
    error('Sanderling has no log yet: the agent process has not run.', 0)
  end
  require('sanderling.ui.loading').edit(path, 'split')
  vim.bo.readonly = true
  require('sanderling.ui.files').guard(vim.api.nvim_get_current_buf())
  vim.cmd.normal({ 'G', bang = true })
end

return M
