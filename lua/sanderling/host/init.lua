--- The host: the Python process that runs the conversation. This module starts it on first use, restarts it after a
--- crash, and is the only one that knows its channel. All messages to it are notifications, so Neovim never waits for
--- Python.
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local debugging = require('sanderling.host.debugging')
local declared = require('sanderling.host.declared')
local lazy = require('sanderling.ui.lazy')
local log = require('sanderling.host.log')
local programs = lazy('sanderling.access.programs')

local M = {}

local LAST_WORDS_MS = 50 -- stderr output may arrive after the exit
local BROKEN = 1 -- Python's exit code after a failed import
local RUNNING = -1 -- result of jobwait() for a running job
local ACK_EVERY = 8 -- frames; src/sanderling/editor/frames.py allows 16 undrawn frames

---@type integer? channel of the running host
local channel
---@type string interpreter of the running host
local host_python = ''
---@type table<string, string> project of each registered session, by session id
local sessions = {}
---@type table<string, string> requested external agents, by session id
local agents = {}
---@type table<string, string?>
local worktrees = {}
---@type table<string, true> sessions that the running host was asked to open
local opened = {}
---@type table<string, true> sessions opened before, whose history is already on the screen
local shown = {}
---@alias sanderling.host.OnAnswer fun(result: table) `result.error` is a sentence
---@type table<integer, sanderling.host.OnAnswer> pending requests, by id
local requests = {}
---@type table<integer, fun(piece: table)> handlers of streamed answers, by request id
local on_pieces = {}
local last_request = 0
---@type boolean the running host has sent something
local has_answered = false
---@type string? why we stop the host
local ending
---@type fun()? reports the exit of the host
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

--- Return the directory of the Python environment: the checkout's `.venv` if it exists, else the one built by
--- :AgentInstall.
---@return string
function M.environment_dir()
  local own = vim.fs.joinpath(M.root(), '.venv')
  if vim.fn.executable(python_in(own)) == 1 then
    return own
  end
  return vim.fs.joinpath(vim.fn.stdpath('data'), 'sanderling', 'venv')
end

---@return string
local function remedy()
  return config.options.python == '' and 'Run :AgentInstall.'
    or "Correct the option 'python', or remove it and run :AgentInstall."
end

--- Return the interpreter for the host.
---@return string? path
---@return string? error why there is none and what to do
function M.python()
  local chosen = config.options.python
  if chosen ~= '' then
    local path = programs.outside(function()
      return vim.fn.exepath(vim.fs.normalize(chosen))
    end)
    if path == '' then
      return nil, ("The option 'python' is '%s', which cannot be run. %s"):format(chosen, remedy())
    end
    return path
  end
  local path = python_in(M.environment_dir())
  if vim.fn.executable(path) == 1 then
    return path
  end
  return nil, "Sanderling's Python environment is not built yet. " .. remedy()
end

-- Set sys.path here and not with PYTHONPATH, which is for the user's programs and is passed on to commands.
local START = table.concat({
  'import runpy, sys',
  'sys.path.insert(0, sys.argv.pop(1))',
  "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
}, '; ')

---@param python string
---@param module string
---@return string[] argv without the module's arguments
function M.argv(python, module)
  return { python, '-E', '-P', '-c', START, vim.fs.joinpath(M.root(), 'src'), module }
end

---@param session_id string
---@param action sanderling.Action
---@return string? error
local function notify(session_id, action)
  if not pcall(vim.rpcnotify, channel, 'sanderling_act', session_id, action) then
    return 'The agent process is exiting. Send the prompt again.'
  end
end

---@param action sanderling.Action
function M.tell_open_sessions(action)
  for session_id in pairs(channel and opened or {}) do
    notify(session_id, action)
  end
end

---@param session_id string
local function forget(session_id)
  if channel and opened[session_id] then
    notify(session_id, { type = 'close_session' })
  end
  opened[session_id] = nil
end

--- Called by the host: draw a frame.
---@param frame sanderling.Frame
function M.receive(frame)
  has_answered = true
  local id = frame.session_id
  if not sessions[id] then
    return -- the session was closed
  end
  for _, event in ipairs(frame.events) do
    if event.type == 'session_opened' then
      shown[id] = true
    elseif event.type == 'session_in_use' then
      forget(id) -- so that the next use opens it again
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

--- Called by the host: the next piece of a streamed answer.
---@param request_id integer
---@param piece table
function M.streamed(request_id, piece)
  has_answered = true
  if on_pieces[request_id] then
    log.guarded(on_pieces[request_id], piece)
  end
end

--- Called by the host: the answer to a request.
---@param request_id integer
---@param result table
function M.answered(request_id, result)
  has_answered = true
  settle(request_id, result)
end

--- Stop the host. The next use restarts it.
---@param reason string shown to the user
function M.stop(reason)
  if channel then
    ending = reason
    vim.fn.jobstop(channel)
  end
end

--- Called by the host: it rejects the settings.
---@param message string
function M.refused(message)
  M.stop('Invalid settings: ' .. message)
end

---@param session_id string
---@param seq integer
function M.drawn(session_id, seq)
  if channel and seq % ACK_EVERY == 0 then
    pcall(vim.rpcnotify, channel, 'sanderling_acknowledge', session_id, seq)
  end
end

--- Return a handler that logs the host's stderr.
---@return fun(_, pieces: string[]) on_stderr the first piece of a call continues the last piece of the previous call
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

--- Report the exit of the host to its sessions.
---@param code integer
---@param python string
---@param missed string[] its sessions
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
    message = ('The agent process exited (%s). The conversation is saved, and the next prompt restarts the process. Details: :Agent log.'):format(
      how
    )
  end
  for _, session_id in ipairs(missed) do
    if sessions[session_id] then
      bus.publish(session_id, { { type = 'local_failed', message = message } })
    end
  end
end

---@param id integer channel of the host that exited
---@param code integer
---@param python string
local function on_exit(id, code, python)
  if channel ~= id then
    return -- already noticed
  end
  channel, opened = nil, {}
  if vim.v.exiting == vim.NIL then
    local missed, unanswered = vim.tbl_keys(sessions), vim.tbl_keys(requests)
    due_report = function()
      report_exit(code, python, missed)
      for _, request_id in ipairs(unanswered) do
        settle(request_id, { error = 'The agent process exited. Try again.' })
      end
    end
    vim.defer_fn(M.report_exit_if_due, LAST_WORDS_MS)
  end
end

--- Report a pending exit of the host now, before anything is sent to the next one. Neovim may not have noticed the exit
--- yet, and a notification to a dead host is an error.
function M.report_exit_if_due()
  local code = channel and vim.fn.jobwait({ channel }, 0)[1] or RUNNING
  if channel and code ~= RUNNING then
    on_exit(channel, code, host_python)
  end
  if due_report then
    due_report()
  end
end

--- Start the host unless it is running.
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
  pcall(vim.fn.mkdir, vim.fn.stdpath('log'), 'p') -- if this fails, the log goes to stderr
  has_answered, ending = false, nil
  debugging.watch()
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
    return ('Cannot start %s. %s'):format(python, remedy())
  end
  channel, host_python = id, python
  vim.rpcnotify(channel, 'sanderling_configure', config.host_settings())
  if declared.has_any() then
    vim.rpcnotify(channel, 'sanderling_declare', declared.all())
  end
end

--- Register a session without starting anything.
---@param session_id string
---@param project string absolute path of the project's root
---@param agent? string the external agent of a new session
---@param worktree? string a branch or commit, from which a new session gets a worktree of its own
function M.register(session_id, project, agent, worktree)
  sessions[session_id], agents[session_id], worktrees[session_id] = project, agent, worktree
end

--- Open a session in the host, starting the host if necessary. Messages sent before it is ready wait in the pipe.
---@param session_id string id of a registered session
---@return string? error
function M.open(session_id)
  local err = start() or not opened[session_id] and config.problem or nil
  if not err and not opened[session_id] then
    opened[session_id] = true
    err = notify(session_id, {
      type = 'open_session',
      project = sessions[session_id],
      agent = agents[session_id],
      worktree = worktrees[session_id],
      wants_history = not shown[session_id],
    })
  end
  return err
end

--- Send an action. `Session:act` reports the error.
---@param session_id string
---@param action sanderling.Action
---@return string? error
function M.act(session_id, action)
  return M.open(session_id) or notify(session_id, action)
end

--- Send a request to the host, starting it if necessary. The answer always arrives later.
---@param request sanderling.Request
---@param on_answer sanderling.host.OnAnswer
---@param on_piece? fun(piece: table) called with each piece of a streamed answer
---@return integer request_id
function M.request(request, on_answer, on_piece)
  local err = start()
  last_request = last_request + 1
  requests[last_request], on_pieces[last_request] = on_answer, on_piece
  local ok = not err and pcall(vim.rpcnotify, channel, 'sanderling_request', last_request, request)
  if not ok then
    err = err or 'The agent process is exiting. Try again.'
    vim.schedule_wrap(settle)(last_request, { error = err })
  end
  return last_request
end

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
  worktrees[session_id] = nil
end

-- Changed options apply to sessions opened from now on.
config.subscribe(function()
  if channel and not config.problem then
    pcall(vim.rpcnotify, channel, 'sanderling_configure', config.host_settings())
  end
end)

declared.subscribe(function()
  if channel then
    pcall(vim.rpcnotify, channel, 'sanderling_declare', declared.all())
  end
end)

---@return boolean
function M.is_running()
  return channel ~= nil
end

--- Ask the running host for its process id. This is the only blocking request, used by :checkhealth.
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
  require('sanderling.access.loading').edit(path, 'split')
  vim.bo.readonly = true
  require('sanderling.access.files').guard(vim.api.nvim_get_current_buf())
  vim.cmd.normal({ 'G', bang = true })
end

return M
