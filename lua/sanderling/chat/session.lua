--- One session that is open here: its transcript and its prompt, what was sent, and what its events mean besides being drawn.
--- Whether a window shows it makes no difference.
local api = vim.api
local attention = require('sanderling.ui.attention')
local bus = require('sanderling.host.bus')
local context = require('sanderling.prompt.context')
local drafts = require('sanderling.prompt.drafts')
local host = require('sanderling.host')
local install = require('sanderling.host.install')
local live = require('sanderling.session.live')
local log = require('sanderling.host.log')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local prompt = require('sanderling.prompt')
local prompt_history = require('sanderling.prompt.history')
local render = require('sanderling.transcript')
local scratch = require('sanderling.ui.scratch')
local states = require('sanderling.session.state')
local todo = require('sanderling.prompt.todo')
local words = require('sanderling.ui.words')

local M = {}

local RETRY_MS = 20
local hint_ns = api.nvim_create_namespace('sanderling_hint')

---@class (exact) sanderling.chat.session.View
---@field saved table as winsaveview() gives it
---@field is_at_end boolean

--- What the windows have to do for a session.
---@class (exact) sanderling.chat.session.Hooks
---@field on_lost fun() somebody has deleted or emptied a buffer of it; `restore` gives it back, as soon as that is allowed
---@field on_sent fun(session: sanderling.chat.session.Session) the person has said something

---@class (exact) sanderling.chat.session.Session
---@field id string
---@field project string root that the session is about
---@field state sanderling.session.state.State what its events say
---@field transcript sanderling.transcript.Transcript
---@field transcript_buf integer
---@field prompt sanderling.prompt.Prompt
---@field private hooks sanderling.chat.session.Hooks
---@field view? sanderling.chat.session.View of the transcript, when it was last hidden
---@field is_open boolean the host has opened it, in this process or in one before
---@field is_awaited? fun(): boolean somebody is waiting for it to open
---@field is_fresh boolean nothing was said in it, or run
---@field todo sanderling.prompt.todo.Todo
---@field inspected? string id of the tool use that is to be shown whole
---@field is_looking? fun(): boolean the person is still where they asked for it
---@field private hint? string what an empty transcript says
---@field private lost table<integer, sanderling.ui.scratch.Copy> what stood in buffers that were deleted or emptied
local Session = {}
Session.__index = Session

-- beginning and end ---------------------------------------------------------------------------------------------------

---@param what string for its name
---@param filetype string
---@return integer
local function new_buffer(what, filetype)
  local buf = scratch.new(what)
  scratch.set_buf_options(buf, { bufhidden = 'hide' })
  scratch.set_filetype(buf, filetype)
  return buf
end

---@return integer
local function new_transcript_buffer()
  local buf = new_buffer('', 'sanderling')
  scratch.set_buf_options(buf, { undolevels = -1, modifiable = false })
  return buf
end

---@return sanderling.prompt.Prompt
local function new_prompt()
  return prompt.new(new_buffer('prompt', 'sanderling_prompt'))
end

--- A session in buffers of its own, which is not begun yet.
---@param hooks sanderling.chat.session.Hooks
---@return sanderling.chat.session.Session
function M.new(hooks)
  local self = setmetatable({
    transcript_buf = new_transcript_buffer(),
    prompt = new_prompt(),
    lost = {},
    hooks = hooks,
  }, Session)
  self.todo = todo.new(self.prompt.buf, function()
    return self.state
  end)
  for _, buf in ipairs(self:buffers()) do
    self:guard(buf)
  end
  return self
end

--- What stands in `buf` is the session's, and outlives it.
---@private
---@param buf integer
function Session:guard(buf)
  scratch.guard(buf, function(copied)
    if vim.list_contains(live.all(), self) then
      self.lost[buf] = copied
      if buf == self.transcript_buf then
        self.transcript:go_away()
      end
      self.hooks.on_lost()
    end
  end)
end

--- Put what stood in `buf` back, into another one if it was deleted.
---@private
---@param buf integer
---@param renew fun(): integer a new buffer, which is the session's from now on
---@return integer
function Session:restore_buffer(buf, renew)
  local is_deleted = not api.nvim_buf_is_loaded(buf)
  local restored = buf
  if is_deleted then
    pcall(api.nvim_buf_delete, buf, { force = true }) -- its name is the new one's
    restored = renew()
    vim.b[restored].sanderling_session = self.id
  end
  scratch.paste(self.lost[buf], restored)
  self:guard(restored)
  self.lost[buf] = nil
  return restored
end

--- Have text and buffers again, if somebody has deleted or emptied them. May raise while text is locked.
---@return boolean are_new some of the buffers are others than before
function Session:restore()
  local before = self:buffers()
  if self.lost[self.prompt.buf] then
    self:restore_buffer(self.prompt.buf, function()
      self.prompt = new_prompt()
      self.todo.buf = self.prompt.buf
      return self.prompt.buf
    end)
  end
  if self.lost[self.transcript_buf] then
    self.transcript_buf = self:restore_buffer(self.transcript_buf, new_transcript_buffer)
    self.transcript:come_back(self.transcript_buf)
  end
  return not vim.deep_equal(before, self:buffers())
end

---@return integer[]
function Session:buffers()
  return { self.transcript_buf, self.prompt.buf }
end

--- Be the session `id` from now on: one of its own that begins, or one whose log exists. The transcript is emptied.
---@param id string
---@param project string
function Session:begin(id, project)
  self.id, self.project, self.state = id, project, states.new(id)
  self.is_open, self.is_fresh, self.view, self.hint = false, true, nil, nil
  self.todo:draw()
  self.transcript = render.new(self.transcript_buf, log.note_defect)
  self:draw_hint()
  for _, buf in ipairs(self:buffers()) do
    vim.b[buf].sanderling_session = id
  end
  host.register(id, project)
  self:keep_draft()
end

--- Open the session in the host; where there is none to start, offer to build its environment.
function Session:open()
  self.is_awaited = attention.watch()
  local err = host.open(self.id)
  if err then
    self:note({ type = 'local_failed', message = err })
    vim.schedule(install.offer)
  end
end

--- The session is no longer open here, its log stays. What it did not begin with comes back into the prompt.
function Session:close()
  local before = self.state
  self.state = states.new(self.id)
  if before.is_in_turn then
    bus.announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'cancelled' })
  end
  self:put_back_prompts(vim.list_extend(states.prompts_waiting(before), before.unconfirmed))
  self:end_commands(before.commands, 'Stopped.')
  host.close(self.id)
  drafts.drop(self.id)
  bus.announce('AgentSessionClosed', { session_id = self.id })
end

--- Delete the buffers. What stands in the prompt is kept in its history.
function Session:delete_buffers()
  if api.nvim_buf_is_loaded(self.prompt.buf) then
    local text = vim.trim(table.concat(self.prompt:lines(), '\n'))
    if text ~= '' then
      prompt_history.add(text)
    end
  end
  render.forget(self.transcript_buf)
  for _, buf in ipairs(self:buffers()) do
    pcall(api.nvim_buf_delete, buf, { force = true })
  end
end

---@return boolean nobody has deleted or emptied a buffer of it
function Session:is_whole()
  return next(self.lost) == nil
end

---@return boolean a window of this tab page shows the transcript
function Session:is_on_screen()
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
    return api.nvim_win_get_buf(win) == self.transcript_buf
  end)
end

--- What it is called: its title, or the time at which it began.
---@return string
function Session:name()
  local title = self.state.title
  return title ~= '' and title or (self.id:gsub('^%d+%-(%d%d)(%d%d).*', '%1:%2'))
end

-- what is not sent yet ------------------------------------------------------------------------------------------------

--- Keep what stands in the prompt, should Neovim be killed.
function Session:keep_draft()
  local text = table.concat(self.prompt:lines(), '\n')
  if self.is_open or text ~= '' then -- else the one that is kept is still to come back
    drafts.keep(self.id, self.project, self.is_fresh, text)
  end
end

--- Put back what stood in the prompt when a Neovim ended.
---@param is_resumed boolean
function Session:restore_draft(is_resumed)
  if table.concat(self.prompt:lines()) ~= '' then
    return
  end
  local text = is_resumed and drafts.take(self.id) or drafts.take_fresh(self.project)
  if text then
    self:put_back({ text })
    self:keep_draft()
  end
end

-- the hint of an empty transcript -------------------------------------------------------------------------------------

function Session:draw_hint()
  if not api.nvim_buf_is_loaded(self.transcript_buf) then
    return
  end
  api.nvim_buf_clear_namespace(self.transcript_buf, hint_ns, 0, -1)
  if self.is_fresh and self.hint then
    local row = api.nvim_buf_line_count(self.transcript_buf) - 1
    local lines = { { { '' } } }
    for _, line in ipairs(words.wrapped(self.hint, words.width_of(self.transcript_buf))) do
      lines[#lines + 1] = { { line, 'AgentPlaceholder' } }
    end
    api.nvim_buf_set_extmark(self.transcript_buf, hint_ns, row, 0, { virt_lines = lines })
  end
end

--- Say something below the transcript for as long as nothing was said in it.
---@param text string
function Session:set_hint(text)
  self.hint = text
  self:draw_hint()
end

function Session:set_used()
  if self.is_fresh then
    self.is_fresh = false
    self:draw_hint()
  end
end

-- prompts -------------------------------------------------------------------------------------------------------------

--- Put `texts` back where they were typed, as soon as text can be changed; where it cannot at all, into the prompt's history.
---@private
---@param texts string[]
function Session:put_back(texts)
  if #texts == 0 then
    return
  end
  local ok, err = pcall(self.prompt.put_back, self.prompt, texts)
  if not ok and locked.reason(tostring(err)) then
    vim.defer_fn(function()
      self:put_back(texts)
    end, RETRY_MS)
  elseif not ok then
    prompt_history.add(table.concat(texts, '\n'))
  end
end

---@param prompts sanderling.Prompt[]
function Session:put_back_prompts(prompts)
  self:put_back(vim.tbl_map(function(each)
    return each.text
  end, prompts))
end

--- Tell the session of something that has happened on this side.
---@param event table its type begins with `local_`
function Session:note(event)
  bus.publish(self.id, { event })
end

--- Say why something was not sent: in the transcript, or below it while an answer is being written there.
---@param text string
function Session:refuse(text)
  if self.state.is_in_turn then
    message.tell(text, vim.log.levels.ERROR)
  else
    self:note({ type = 'local_refused', message = text })
  end
end

--- Say something in the transcript.
---@param level 'info'|'warning'
---@param text string
function Session:say(level, text)
  self:note({ type = 'local_notice', level = level, text = text })
end

--- Send an action; if the host cannot be reached, the transcript says why, and what it knows nothing of comes back.
---@param action sanderling.Action
---@param sent? table what this side knows by it, as an event
---@return boolean is_sent
function Session:act(action, sent)
  local err = host.act(self.id, action) -- first of all: this may find that a host has died, and `sent` is not that one's
  if sent then
    self:note(sent)
  end
  if err then
    self:note({ type = 'local_failed', message = err })
  end
  return not err
end

---@return string id that no prompt had before, in this process or an earlier one
local function new_prompt_id()
  local now = assert(vim.uv.clock_gettime('realtime'))
  return ('%d%09d'):format(now.sec, now.nsec)
end

--- Send `lines` to the model, or refuse them whole and say why. When the host cannot start, they stand in the prompt again.
---@param lines string[]
---@param opts? { selections?: sanderling.Selection[], is_steering?: boolean } steering: in the middle of the turn
---@return boolean
function Session:send(lines, opts)
  opts = opts or {}
  local text, refusal = context.prompt(lines)
  if not text then
    self:refuse(assert(refusal))
    return false
  end
  local sent = { id = new_prompt_id(), text = text, selections = opts.selections }
  local type = opts.is_steering and 'steer_turn' or 'submit_prompt'
  self:set_used()
  self:act({ type = type, prompt = sent }, { type = 'local_prompt_sent', prompt = sent })
  self.hooks.on_sent(self)
  return true
end

--- Run a command in the sandbox, or refuse it whole and say why. When the host cannot start, it stands in the prompt.
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

--- Do what was typed into the prompt: a command of the chat's after a `/`, one for the shell after a `!`, else words for the model.
---@param lines string[]
---@param is_steering boolean
---@return boolean
function Session:send_typed(lines, is_steering)
  local slash = require('sanderling.prompt.slash')
  if slash.is_command(lines) then
    return slash.run(lines, self, is_steering)
  elseif vim.startswith(lines[1], '!') then
    local command = vim.list_slice(lines)
    command[1] = command[1]:sub(2)
    return self:run(command)
  end
  return self:send(lines, { is_steering = is_steering })
end

--- Send what stands in the prompt. An empty one lets those go that are held.
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

--- Stop the turn, or the command that was started last.
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

--- None of `commands` runs any more: those that never started come back into the prompt.
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

-- Events reach sessions from there.
require('sanderling.chat.events')

return M
