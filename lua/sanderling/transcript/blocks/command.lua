--- The user's commands in the transcript, and reports of the sandbox.
local blocks = require('sanderling.transcript.blocks')
local icons = require('sanderling.ui.icons')
local sandbox = require('sanderling.session.sandbox')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local FOLDED_FROM_LINES = 21 -- lines of output
local CLOSED_FROM_LINES = 201

---@type table<string, sanderling.transcript.blocks.Draw> by event type
local draw = {}

-- commands ------------------------------------------------------------------------------------------------------------

---@param command string
---@return string
local function command_label(command)
  local line, rest = words.trimmed(command):match('^([^\n]*)(.*)$')
  return '$ ' .. line .. (rest ~= '' and ' ' .. icons.more or '')
end

---@param self sanderling.transcript.Transcript
---@param id string
---@param label string
local function open_command(self, id, label)
  self:close_block()
  local row = self:append_block(label, 'AgentCommand')
  self.headers[#self.headers + 1] = row
  self.open = { id = id, kind = 'command', row = row, col = 0, label = label }
end

--- Return the open block of the command `id`, or start a new one if another block follows its last.
---@param self sanderling.transcript.Transcript
---@param id string
---@return sanderling.transcript.OpenBlock
local function block_of(self, id)
  if not self.open or self.open.id ~= id then
    open_command(self, id, (self.commands[id] or '$ command') .. ' (continued)')
  end
  return self.open
end

function draw.command_started(self, event)
  self.commands[event.id] = command_label(event.command)
  self.refused = {}
  open_command(self, event.id, self.commands[event.id])
end

function draw.command_output(self, event)
  if event.text ~= '' then
    self:append_output(block_of(self, event.id), event.text)
  end
end

function draw.command_ended(self, event)
  local open = block_of(self, event.id)
  local row = self:append_lines(
    unseen.visible(event.outcome),
    event.is_success and 'AgentNotice' or 'AgentError'
  )
  for _, note in ipairs(event.notes or {}) do
    self:append_lines(unseen.visible(note), 'AgentNotice')
  end
  local lines = row - open.row - 1
  if lines >= FOLDED_FROM_LINES then
    self:add_fold({
      first = open.row,
      last = row - 1,
      label = open.label,
      lines = lines,
      hl = 'AgentCommand',
      state = lines < CLOSED_FROM_LINES and 'open' or 'closed unless read',
    })
  end
  self:close_block()
  self.commands[event.id] = nil
end

-- the sandbox ---------------------------------------------------------------------------------------------------------

--- Add a remark. If the block of a command is open, it goes into that block, and the output continues below.
---@param event { text: string, hl: string, remedy?: string }
function draw.remark(self, event)
  local text = unseen.visible(event.text)
  if self.open then
    self:append_lines(text, event.hl)
    self.open.output_row, self.open.output_mark, self.open.has_remark = nil, nil, true
  else
    self:append_block(text, event.hl)
  end
  if event.remedy then
    self:append_lines(event.remedy, 'AgentRemedy')
  end
end

---@param self sanderling.transcript.Transcript
---@param text string
---@param hl string
---@param remedy? string
local function remark(self, text, hl, remedy)
  self:draw({ type = 'remark', text = text, hl = hl, remedy = remedy })
end

local is_network_operation = { connect = true, resolve = true }

---@type table<string, string> by the network that refused
local network_remedies = {
  off = ':AgentNet on opens the network, :AgentNet proxy opens only the hosts in sandbox.hosts.',
  proxy = 'Add the host to the option sandbox.hosts, or open the network with :AgentNet on.',
}

local PROGRAM_REMEDY =
  'Add its directory to the option sandbox.read to make it visible in every session.'

function draw.access_denied(self, event)
  local text = ('The sandbox blocked: %s %s (%s)'):format(event.operation, event.target, event.rule)
  if self.refused[text] then
    return -- repeated attempts are reported once
  end
  local remedy = is_network_operation[event.operation] and network_remedies[self.sandbox.network]
    or event.operation == 'execute' and PROGRAM_REMEDY
  local is_shown = not remedy or self.refused[remedy]
  remark(self, text, 'AgentWarning', not is_shown and remedy or nil)
  self.refused[text] = true
  if remedy then
    self.refused[remedy] = true
  end
end

---@type table<string, string>
local guard_sentences = {
  quarantined = 'The sandbox undid a change: %s (%s).',
  restored = 'The sandbox undid a change: %s (%s).',
  failed = 'The sandbox could not undo a change: %s (%s).',
  noticed = 'Look at %s: it %s.',
}

function draw.guard_acted(self, event)
  local sentence = guard_sentences[event.kind]
  if not sentence then
    return -- 'replaced' is internal to the host
  end
  local text = sentence:format(event.path, event.reason)
  if (event.kept_at or '') ~= '' then
    text = ('%s\nThe written content is saved at %s'):format(text, event.kept_at)
  end
  if event.kind == 'failed' then
    local remedy =
      'It can run code outside the sandbox. Check it before git, a shell or an editor reads it.'
    remark(self, text, 'AgentError', remedy)
  else
    remark(self, text, 'AgentWarning')
  end
end

function draw.sandbox_changed(self, event)
  local before = self.sandbox
  local problem = event.problem or ''
  if problem ~= '' and problem ~= before.problem then
    remark(self, problem, 'AgentError')
  end
  if event.level == 'off' and before.level ~= 'off' then
    remark(self, sandbox.OFF_SENTENCE, 'AgentError')
  elseif event.level ~= 'off' and before.level == 'off' then
    remark(self, 'The sandbox is on again.', 'AgentNotice')
  end
  if event.network ~= before.network and event.level ~= 'outer' then
    remark(self, sandbox.network_sentence(event.network, true), 'AgentNotice')
  end
  self.sandbox = { level = event.level, network = event.network, problem = problem }
end

blocks.register({
  draw = draw,
  beside = { 'command_started', 'command_output', 'command_ended', 'access_denied', 'remark' },
  new = function()
    return {
      commands = {},
      refused = {},
      sandbox = { level = '', network = 'off', problem = '' },
    }
  end,
})
