--- The sandbox's state as shown on the screen.
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')

local M = {}

M.NETWORK_MODES = { 'off', 'proxy', 'on' }
M.ACTIONS = { 'status', 'off', 'on' }

---@param session_id string
---@return sanderling.session.state.Sandbox
function M.of(session_id)
  return live.state_of(session_id).sandbox
end

-- short texts for winbar and statusline -------------------------------------------------------------------------------

---@class (exact) sanderling.session.sandbox.LevelWords
---@field name? string nil while unknown
---@field warning? string
---@field hl? string

---@type table<string, sanderling.session.sandbox.LevelWords>
local level_words = {
  [''] = {},
  full = { name = 'full' },
  ['full-bwrap'] = { name = 'full(bwrap)' },
  namespaces = { name = 'ns', warning = 'partial', hl = 'AgentWarning' },
  seatbelt = { name = 'seatbelt' },
  landlock = { name = 'landlock', warning = 'partial', hl = 'AgentWarning' },
  none = { name = 'none', warning = 'blocked', hl = 'AgentError' },
  outer = { name = 'outer', warning = 'container', hl = 'AgentWarning' },
  off = { name = 'OFF', warning = 'unprotected', hl = 'AgentError' },
}

--- Return level and network, each with a highlight if it is unusual.
---@param session_id string
---@param is_short? boolean without the warning
---@return { text: string, hl: string? }[]
function M.words(session_id, is_short)
  local known = M.of(session_id)
  local level = level_words[known.level]
  local network = known.level == 'off' and 'on' or known.network -- without a sandbox the network is not restricted
  local warning = not is_short and level.warning and ' ' .. level.warning or ''
  return {
    { text = 'sbx:' .. (level.name or icons.more) .. warning, hl = level.hl },
    { text = 'net:' .. network, hl = network == 'on' and 'AgentWarning' or nil },
  }
end

-- sentences -----------------------------------------------------------------------------------------------------------

---@type table<string, string>
local network_sentences = {
  off = 'Network off: %scommands reach nothing outside the session.',
  proxy = 'Network proxy: %scommands reach only the hosts in sandbox.hosts and those you have allowed.',
  on = 'Network on: %scommands reach any address.',
}

--- Return a sentence about the network, for all commands or only for new ones.
---@param mode 'off'|'proxy'|'on'
---@param is_change? boolean
---@return string
function M.network_sentence(mode, is_change)
  return network_sentences[mode]:format(is_change and 'new ' or '')
end

M.OFF_SENTENCE =
  'THE SANDBOX IS OFF in this session: commands run with all your rights. :Agent sandbox on switches it on again.'

---@type table<string, string>
local level_sentences = {
  [''] = 'The sandbox level is not known yet: the agent process is still checking. On macOS this takes some seconds after each start and update.',
  full = 'Sandbox full: the kernel confines commands to the project.',
  ['full-bwrap'] = 'Sandbox full, using bubblewrap: the kernel confines commands to the project.',
  namespaces = 'Sandbox namespaces, weaker than full: Landlock is not available.',
  seatbelt = 'Sandbox seatbelt, verified on this Mac: the kernel confines commands to the project.',
  landlock = 'Sandbox landlock, weaker than full: commands have no namespaces of their own.',
  none = 'Sandbox none: nothing here can confine commands, so they are blocked. :Agent sandbox off runs them unconfined in this session.',
  outer = 'Sandbox outer: the container around the agent confines commands, and nothing else does.',
  off = M.OFF_SENTENCE,
}

--- Return a report about the sandbox.
---@param session_id string
---@return string text
---@return boolean is_weaker than full
function M.report(session_id)
  local known = M.of(session_id)
  local lines = { level_sentences[known.level] }
  if known.problem ~= '' then
    lines[#lines + 1] = known.problem
  end
  if known.level ~= 'off' and known.level ~= 'outer' then
    lines[#lines + 1] = M.network_sentence(known.network)
  end
  if #known.missing > 0 then
    lines[#lines + 1] = 'Missing here:'
    for _, item in ipairs(known.missing) do
      lines[#lines + 1] = '- ' .. item
    end
  end
  return table.concat(lines, '\n'), known.problem ~= '' or level_words[known.level].hl ~= nil
end

-- completion ----------------------------------------------------------------------------------------------------------

--- Complete a shell command as `:!` does. The built-in completion type would expand `%` and `#` in the command.
---@param _ string
---@param line string
---@param pos integer
---@return string[]
function M.complete_command(_, line, pos)
  local command = line:sub(1, pos):match('%u%a*%s+(.*)') or ''
  return vim.fn.getcompletion(command, 'shellcmdline')
end

return M
