--- An open session: its buffers, drafts, prompts and commands. It works the same whether or not a window shows it.
local lazy = require('sanderling.ui.lazy')

local ask = require('sanderling.host.ask')
local attention = require('sanderling.ui.attention')
local buffers = require('sanderling.chat.buffers')
local bus = require('sanderling.host.bus')
local context = lazy('sanderling.prompt.context')
local drafts = lazy('sanderling.prompt.drafts')
local host = require('sanderling.host')
local install = require('sanderling.host.install')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local mentions = lazy('sanderling.prompt.mentions')
local message = require('sanderling.ui.message')
local processes = require('sanderling.access.process')
local prompt_history = lazy('sanderling.prompt.history')
local slash = require('sanderling.prompt.slash')
local sources = lazy('sanderling.prompt.sources')
local states = require('sanderling.session.state')
local transcripts = require('sanderling.transcript')
local words = require('sanderling.ui.words')

local M = {}

local ABOUT_CODE = { ['/explain'] = true, ['/fix'] = true, ['/test'] = true } -- without words: the code at the cursor

---@class (exact) sanderling.chat.session.View
---@field saved table result of winsaveview()
---@field is_at_end boolean

--- Callbacks for the windows that show the session.
---@class (exact) sanderling.chat.session.Hooks
---@field on_lost fun() a buffer was deleted or emptied; call `restore` as soon as text may be changed
---@field on_sent fun(session: sanderling.chat.session.Session) the user has sent something

--- A prompt whose mentions are being resolved.
---@class (exact) sanderling.chat.session.Leaving
---@field id string of the session
---@field text string
---@field selections? sanderling.Selection[]
---@field type 'submit_prompt'|'steer_turn'
---@field is_ready boolean
---@field problem? string why resolving failed

---@class (exact) sanderling.chat.session.Session: sanderling.chat.buffers.Buffers
---@field project string root of the project
---@field agent? string the requested external agent
---@field private hooks sanderling.chat.session.Hooks
---@field view? sanderling.chat.session.View of the transcript when it was last hidden
---@field is_open boolean a host has opened it, this one or an earlier one
---@field private leaving sanderling.chat.session.Leaving[] in order
---@field private is_looking? boolean the transcript shows that mentions are being resolved
---@field is_awaited? fun(): boolean returns whether the user is still waiting for it to open
local Session = setmetatable({}, { __index = buffers.Buffers })
Session.__index = Session

-- start and end -------------------------------------------------------------------------------------------------------

--- Create the buffers of a session. `begin` starts it.
---@param hooks sanderling.chat.session.Hooks
---@return sanderling.chat.session.Session
function M.new(hooks)
  local self = setmetatable({ hooks = hooks, leaving = {} }, Session)
  self:make_buffers(function()
    return vim.list_contains(live.all(), self)
  end, hooks.on_lost)
  return self
end

--- Become the session `id`, a new or a stored one. The transcript is emptied.
---@param id string
---@param project string
---@param agent? string the external agent of a new session
---@param worktree? string a branch or commit, from which a new session gets a worktree of its own
function Session:begin(id, project, agent, worktree)
  self.id, self.project, self.agent, self.state = id, project, agent, states.new(id)
  self.is_open, self.is_fresh, self.view, self.hint = false, true, nil, nil
  self.todo:draw()
  self.transcript = transcripts.new(self.transcript_buf, log.note_defect)
  self:draw_hint()
  for _, buf in ipairs(self:buffers()) do
    vim.b[buf].sanderling_session = id
  end
  host.register(id, project, agent, worktree)
  self:keep_draft()
end

--- Open the session in the host. If the host's environment is missing, offer to build it.
function Session:open()
  self.is_awaited = attention.watch()
  local err = host.open(self.id)
  if err then
    self:note({ type = 'local_failed', message = err })
    vim.schedule(install.offer)
  end
end

--- Close the session. Its log stays on disk, and prompts that were not started come back into the prompt.
function Session:close()
  local before = self.state
  self.state = states.new(self.id)
  if before.is_in_turn then
    bus.announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'cancelled' })
  end
  self:put_back_prompts(vim.list_extend(states.prompts_waiting(before), before.unconfirmed))
  self:end_commands(before.commands, 'Stopped.')
  host.close(self.id)
  bus.tell(self.id, { type = 'local_closed' }, before)
  drafts.drop(self.id)
  bus.announce('AgentSessionClosed', { session_id = self.id })
end

---@return string
function Session:name()
  local title = self.state.title
  return title ~= '' and title or (self.id:gsub('^%d+%-(%d%d)(%d%d).*', '%1:%2'))
end

-- drafts --------------------------------------------------------------------------------------------------------------

--- Save the text of the prompt, in case Neovim is killed.
function Session:keep_draft()
  if not self.prompt then
    return
  end
  local text = table.concat(self.prompt:lines(), '\n')
  if self.is_open or text ~= '' then -- otherwise the saved draft has not been restored yet
    drafts.keep(self.id, self.project, self.is_fresh, text)
  end
end

--- Restore the draft that an earlier Neovim saved.
---@param is_resumed boolean
function Session:restore_draft(is_resumed)
  if not self.prompt or table.concat(self.prompt:lines()) ~= '' then
    return
  end
  local text = is_resumed and drafts.take(self.id) or drafts.take_fresh(self.project)
  if text then
    self:put_back({ text })
    self:keep_draft()
  end
end

-- prompts -------------------------------------------------------------------------------------------------------------

--- Put `texts` back into the prompt as soon as text may be changed. If that fails, or there is no prompt, put them into
--- the prompt history.
---@private
---@param texts string[]
function Session:put_back(texts)
  if #texts == 0 then
    return
  end
  local function keep()
    prompt_history.add(table.concat(texts, '\n'))
  end
  if not self.prompt then
    return keep()
  end
  locked.retry(function()
    self.prompt:put_back(texts)
  end, keep)
end

---@param prompts sanderling.Prompt[]
function Session:put_back_prompts(prompts)
  self:put_back(vim.tbl_map(function(each)
    return each.text
  end, prompts))
end

---@param event table its type begins with `local_`
function Session:note(event)
  bus.publish(self.id, { event })
end

--- Report why something was not sent: in the transcript, or as a message during a turn.
---@param text string
function Session:refuse(text)
  if self.state.is_in_turn then
    message.tell(text, vim.log.levels.ERROR)
  else
    self:note({ type = 'local_refused', message = text })
  end
end

--- Show a notice in the transcript in response to an action of the user.
---@param level 'info'|'warning'
---@param text string
---@param topic? string lets `correct` find the notice
function Session:say(level, text, topic)
  self:note({ type = 'local_notice', level = level, text = text, topic = topic })
  self.hooks.on_sent(self)
end

--- Replace the notice on `topic`, which is outdated, by `text`.
---@param topic string
---@param text string
function Session:correct(topic, text)
  self:note({ type = 'local_notice_outdated', topic = topic, text = text })
end

--- Send an action. If the host cannot be reached, the transcript says why, and prompts that it did not accept come
--- back.
---@param action sanderling.Action
---@param sent? table a local event to publish
---@return boolean is_sent
function Session:act(action, sent)
  local err = host.act(self.id, action) -- first, because this may find that the host has died, which `sent` has nothing to do with
  if sent then
    self:note(sent)
  end
  if err then
    self:note({ type = 'local_failed', message = err })
  end
  return not err
end

--- Send a request about this session.
---@param request table a sanderling.Request, without its `session_id`
---@param on_answer fun(result: table, is_here: boolean) is_here: the user has not moved on meanwhile
---@param on_failure? fun(sentence: string) default: the transcript says why
function Session:ask(request, on_answer, on_failure)
  local id, err = self.id, host.open(self.id)
  if err then
    return self:note({ type = 'local_failed', message = err })
  end
  local function if_open(fn)
    return function(...)
      if live.find(id) == self then
        fn(...)
      end
    end
  end
  request = vim.tbl_extend('error', request, { session_id = id })
  ask(
    request,
    if_open(on_answer),
    if_open(on_failure or function(sentence)
      self:say('warning', sentence)
    end)
  )
end

---@return string unique id, also across processes
local function new_prompt_id()
  local now = assert(vim.uv.clock_gettime('realtime'))
  return ('%d%09d'):format(now.sec, now.nsec)
end

--- Send `lines` to the model, or refuse all of them and say why. If the host cannot start, they come back into the
--- prompt.
---@param lines string[]
---@param opts? { selections?: sanderling.Selection[], is_steering?: boolean, is_verbatim?: boolean } steering: send during the turn; verbatim: an @ is no mention
---@return boolean
function Session:send(lines, opts)
  opts = opts or {}
  local text, refusal = context.prompt(lines)
  if not text then
    self:refuse(assert(refusal))
    return false
  end
  local leaving = {
    id = self.id,
    text = text,
    selections = opts.selections,
    type = opts.is_steering and 'steer_turn' or 'submit_prompt',
    is_ready = false,
  }
  self.leaving[#self.leaving + 1] = leaving
  processes.in_background(function()
    if not opts.selections and ABOUT_CODE[text] then
      local here = sources.around_cursor(self.project)
      leaving.selections = here and { here } or nil
    end
    if not opts.is_verbatim and text:find('@', 1, true) then
      local ok, found = pcall(mentions.selections, lines, self)
      leaving.problem = not ok and words.first_line(tostring(found)) or nil
      leaving.selections = ok and vim.list_extend(vim.list_slice(opts.selections or {}), found)
    end
    leaving.is_ready = true
    self:let_go()
  end)
  if not leaving.is_ready then
    self.is_looking = true
    self:note({ type = 'local_looking_up', is_on = true })
  end
  return true
end

--- Send the prompts whose mentions are resolved, in the order they were typed.
---@private
function Session:let_go()
  while self.leaving[1] and self.leaving[1].is_ready do
    local next_one = table.remove(self.leaving, 1)
    if next_one.id ~= self.id or live.find(self.id) ~= self then
      prompt_history.add(next_one.text) -- the session was closed
    elseif next_one.problem then
      self:refuse(next_one.problem)
      self:put_back({ next_one.text })
    else
      self:submit(next_one)
    end
  end
  if self.is_looking and #self.leaving == 0 then
    self.is_looking = nil
    self:note({ type = 'local_looking_up', is_on = false })
  end
end

--- Is a prompt still to be answered: not sent yet, or waiting?
---@param text string
---@return boolean
function Session:is_waiting(text)
  local sent = vim.list_extend(states.prompts_waiting(self.state), self.state.unconfirmed)
  return #self.leaving > 0
    or vim.iter(sent):any(function(prompt)
      return prompt.text == text
    end)
end

---@private
---@param leaving sanderling.chat.session.Leaving
function Session:submit(leaving)
  local sent = { id = new_prompt_id(), text = leaving.text, selections = leaving.selections }
  self:set_used()
  self:act({ type = leaving.type, prompt = sent }, { type = 'local_prompt_sent', prompt = sent })
  self.hooks.on_sent(self)
end

--- Run a command in the sandbox, or refuse it and say why. If the host cannot start, it comes back into the prompt.
---@param lines string[]
---@return boolean
function Session:run(lines)
  local command, err = context.command(lines)
  if not command then
    self:refuse(assert(err))
    return false
  end
  local id = ('%d'):format(vim.uv.hrtime())
  local sent = { type = 'local_command_sent', id = id, command = command }
  self:set_used()
  self:act({ type = 'run_command', id = id, command = command }, sent)
  self.hooks.on_sent(self)
  return true
end

--- Act on text typed into the prompt: a slash command, a shell command after `!`, or a prompt for the model.
---@param lines string[]
---@param is_steering boolean
---@return boolean
function Session:send_typed(lines, is_steering)
  if slash.is_command(lines) then
    return slash.run(lines, self, is_steering)
  elseif vim.startswith(lines[1], '!') then
    local command = vim.list_slice(lines)
    command[1] = command[1]:sub(2)
    return self:run(command)
  end
  return self:send(lines, { is_steering = is_steering })
end

--- Send the text of the prompt. If it is empty, release held prompts.
---@param is_steering boolean
function Session:send_prompt(is_steering)
  if self.state.waiting.is_held and table.concat(self.prompt:lines()):find('%S') == nil then
    self:act({ type = 'release_waiting' })
    return
  end
  self.prompt:send(function(lines)
    return self:send_typed(lines, is_steering)
  end)
end

function Session:stop()
  if states.is_busy(self.state) then
    self:act({ type = 'cancel_turn' }, { type = 'local_stop_sent' })
  end
end

-- commands ------------------------------------------------------------------------------------------------------------

---@param command string
---@param outcome string
---@param is_success boolean
function Session:announce_command_end(command, outcome, is_success)
  bus.announce('AgentCommandEnded', {
    session_id = self.id,
    command = command,
    outcome = outcome,
    is_success = is_success,
  })
end

--- Report the end of `commands`. Commands that were not started come back into the prompt.
---@param commands sanderling.session.state.Command[]
---@param outcome string
function Session:end_commands(commands, outcome)
  local texts = {}
  for _, command in ipairs(commands) do
    if command.has_started then
      self:announce_command_end(command.command, outcome, false)
    else
      texts[#texts + 1] = '!' .. command.command
    end
  end
  self:put_back(texts)
end

-- This module delivers events to sessions.
require('sanderling.chat.events')

return M
