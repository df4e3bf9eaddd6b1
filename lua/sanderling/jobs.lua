--- Jobs: commands of the model's that go on in the background, each in a buffer that shows it as a terminal would.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local files = require('sanderling.files')
local host = require('sanderling.host')
local live = require('sanderling.live')
local tools = require('sanderling.tools')

---@class (exact) sanderling.jobs.Screen where a job is shown
---@field buf integer
---@field channel integer
---@field session_id string
---@field in_string boolean what was written last ended within a string of the terminal's
---@field rest string the escape sequence that was not complete yet
---@field is_over? boolean its end stands there

---@type table<string, sanderling.Job[]> by session id
local jobs = {}
---@type table<string, sanderling.jobs.Screen> by session and job
local screens = {}

---@param session_id string
---@param id string of the job
---@return string
local function key(session_id, id)
  return session_id .. '/' .. id
end

-- what is written -----------------------------------------------------------------------------------------------------

--- Take out of what a job wrote the strings that speak to the terminal itself: a job must not set the clipboard or the title, nor
--- ask for answers. Colours and the cursor's movements stay.
---@param screen sanderling.jobs.Screen
---@param text string
---@return string
local function without_strings(screen, text)
  text = screen.rest .. text
  screen.rest = ''
  local pieces, pos = {}, 1
  while pos <= #text do
    if screen.in_string then
      -- ends with BEL, ST (ESC \ or U+009C); CAN, SUB and any other sequence break it off
      local at = text:find('[\7\24\26\27\156]', pos)
      local is_split = at and at == #text and text:byte(at) == 27
      if not at or is_split then
        screen.rest = is_split and '\27' or ''
        break
      end
      if text:byte(at) == 27 then
        screen.in_string = false
        pos = text:sub(at + 1, at + 1) == '\\' and at + 2 or at
      else
        screen.in_string = text:byte(at) == 156 and text:byte(at - 1) ~= 194
        pos = at + 1
      end
    else
      local at = text:find('[\27\194]', pos)
      pieces[#pieces + 1] = text:sub(pos, (at or 0) - 1)
      if not at then
        break
      elseif at == #text then
        screen.rest = text:sub(at)
        break
      end
      local next_byte = text:sub(at + 1, at + 1)
      -- DCS, SOS, OSC, PM and APC: ESC and a letter, or one character of U+0080 to U+009F
      if text:byte(at) == 27 and next_byte:find('[PX%]%^_]') then
        screen.in_string, pos = true, at + 2
      elseif text:byte(at) == 194 and next_byte:find('[\144\152\157\158\159]') then
        screen.in_string, pos = true, at + 2
      else
        pieces[#pieces + 1] = text:sub(at, at)
        pos = at + 1
      end
    end
  end
  return table.concat(pieces)
end

---@param screen sanderling.jobs.Screen
---@param text string
local function write(screen, text)
  text = without_strings(screen, text):gsub('\r?\n', '\r\n')
  pcall(api.nvim_chan_send, screen.channel, text) -- the buffer may be going
end

---@param screen sanderling.jobs.Screen
---@param sentence string
local function write_end(screen, sentence)
  if not screen.is_over then
    screen.is_over = true
    screen.in_string, screen.rest = false, ''
    write(screen, ('\27[0m\n[%s]\n'):format(tools.plain(sentence)))
  end
end

-- events --------------------------------------------------------------------------------------------------------------

---@param session_id string
---@param sentence string
local function end_all(session_id, sentence)
  jobs[session_id] = nil
  for _, screen in pairs(screens) do
    if screen.session_id == session_id then
      write_end(screen, sentence)
    end
  end
end

---@type table<string, fun(session_id: string, event: any)>
local handlers = {}

function handlers.jobs_changed(session_id, event)
  jobs[session_id] = event.jobs
  for _, job in ipairs(event.jobs) do
    local screen = screens[key(session_id, job.id)]
    if screen and job.outcome ~= '' then
      write_end(screen, job.outcome)
    end
  end
end

function handlers.job_output(session_id, event)
  local screen = screens[key(session_id, event.id)]
  if screen then
    write(screen, event.text)
  end
end

function handlers.local_failed(session_id)
  end_all(session_id, 'The agent process has ended.')
end

function handlers.local_closed(session_id)
  end_all(session_id, 'The conversation was closed.')
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if handlers[event.type] then
      handlers[event.type](session_id, event)
    end
  end
end)

-- showing and stopping ------------------------------------------------------------------------------------------------

---@param session_id string
---@param action sanderling.Action
local function act(session_id, action)
  local err = host.act(session_id, action)
  if err then
    host.publish(session_id, { { type = 'local_failed', message = err } })
  end
end

---@return sanderling.Job[] of the current session
local function known()
  return jobs[live.current_id()] or {}
end

--- The job `id`, or the newest one; says so when there is none.
---@param id string empty: the newest
---@return sanderling.Job?
local function find(id)
  local list = known()
  if id == '' and #list > 0 then
    return list[#list]
  end
  for _, job in ipairs(list) do
    if job.id == id then
      return job
    end
  end
  local sentence = id == '' and 'No job was started in this conversation.'
    or ('There is no job %s.'):format(id)
  vim.notify(sentence, vim.log.levels.WARN)
end

--- Show `buf` below all other windows. What the window before has for its own is not taken over.
---@param buf integer
local function open_split(buf)
  local win = api.nvim_open_win(buf, true, {
    split = 'below',
    win = -1,
    height = math.max(3, math.floor(vim.o.lines / 3)),
  })
  for name, value in pairs({
    winbar = '',
    winfixbuf = false,
    winfixheight = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    foldcolumn = '0',
    statuscolumn = '',
  }) do
    vim.wo[win][0][name] = value
  end
end

---@param job sanderling.Job
---@param session_id string
local function stop(job, session_id)
  if job.outcome == '' then
    act(session_id, { type = 'stop_job', id = job.id })
  end
end

---@param buf integer
---@param job sanderling.Job
---@param session_id string
local function set_keys(buf, job, session_id)
  files.guard(buf, function()
    local session = live.find(session_id)
    files.go_to_name_here(session and session.project or vim.fn.getcwd())
  end)
  local stop_key = config.options.keys.stop
  for _, lhs in ipairs(type(stop_key) == 'table' and stop_key or { stop_key or nil }) do
    vim.keymap.set({ 'n', 't' }, lhs, function()
      stop(job, session_id)
    end, { buffer = buf, desc = 'Agent: stop the job' })
  end
  vim.keymap.set('n', 'q', function()
    if not pcall(api.nvim_win_close, 0, false) then
      vim.cmd.enew() -- the last window
    end
  end, { buffer = buf, nowait = true, desc = 'Agent: hide the job' })
end

---@param job sanderling.Job
---@param session_id string
local function open(job, session_id)
  local buf = api.nvim_create_buf(false, true)
  vim.bo[buf].bufhidden = 'hide'
  pcall(api.nvim_buf_set_name, buf, ('sanderling://job/%s'):format(key(session_id, job.id)))
  open_split(buf)
  local screen = {
    buf = buf,
    channel = api.nvim_open_term(buf, {}), -- in its window, which gives it its size
    session_id = session_id,
    in_string = false,
    rest = '',
  }
  screens[key(session_id, job.id)] = screen
  set_keys(buf, job, session_id)
  api.nvim_create_autocmd('BufUnload', {
    buffer = buf,
    once = true,
    desc = 'Agent: watch the job no longer',
    callback = function()
      screens[key(session_id, job.id)] = nil
      if jobs[session_id] then
        act(session_id, { type = 'watch_job', id = job.id, is_on = false })
      end
    end,
  })
  vim.cmd('normal! G') -- the window goes along with the output
  act(session_id, { type = 'watch_job', id = job.id, is_on = true })
end

--- Show a job's output in a split, the newest job's unless `id` is given.
---@param id string
function M.show(id)
  local job = find(id)
  if not job then
    return
  end
  local session_id = assert(live.current_id())
  local screen = screens[key(session_id, job.id)]
  local win = screen and vim.fn.bufwinid(screen.buf) or -1
  if win ~= -1 then
    api.nvim_set_current_win(win)
  elseif screen and api.nvim_buf_is_loaded(screen.buf) then
    open_split(screen.buf)
  else
    open(job, session_id)
  end
end

--- Stop a job, the newest unless `id` is given.
---@param id string
function M.stop(id)
  local job = find(id)
  if job then
    stop(job, assert(live.current_id()))
  end
end

---@param lead string
---@return string[] ids
function M.complete(lead)
  local ids = vim.tbl_map(function(job)
    return job.id
  end, known())
  return vim.tbl_filter(function(id)
    return vim.startswith(id, lead)
  end, ids)
end

return M
