--- External agents in the chat: sessions in which one of them answers, and the options that it offers.
local M = {}

local lazy = require('sanderling.ui.lazy')
local ask = require('sanderling.host.ask')
local config = require('sanderling.config')
local host = require('sanderling.host')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local open = require('sanderling.chat.open')
local picker = lazy('sanderling.picker')
local refresh = require('sanderling.host.refresh')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local SCHEMES = { 'ssh', 'via', 'ws', 'wss' }
local ADDRESSES = { 'ssh://HOST/PATH', 'via://COMMAND/PATH', 'ws://HOST:PORT', 'unix:/PATH' }
local NONE = 'This agent has no options.'

--- Return the names of the bundled agents, read from presets.toml.
---@return string[]
local function presets()
  local found = {}
  for line in io.lines(vim.fs.joinpath(host.root(), 'src/sanderling/agents/presets.toml')) do
    found[#found + 1] = line:match('^%[([%w_-]+)%]')
  end
  return found
end

---@type string[]? names of agents, as last reported by the host
local names

--- Return the names of known agents. Until the host has reported them, these are the bundled and the configured ones.
---@return string[]
local function known_names()
  refresh({ type = 'list_agents' }, function(result)
    names = result.agents
  end)
  if names then
    return names
  end
  local found = vim.list_extend(presets(), vim.tbl_keys(config.options.agents))
  table.sort(found)
  return vim.fn.uniq(found)
end

---@param lead string
---@return string[]
function M.complete(lead)
  return words.beginning_with(
    vim.list_extend(vim.list_slice(config.POSITIONS), known_names()),
    lead
  )
end

---@param session sanderling.chat.session.Session
---@return string name of the external agent; empty: Sanderling's own
function M.of(session)
  return session.agent or session.state.agent or ''
end

---@param word string
---@return boolean `word` is the address of a remote session
local function is_address(word)
  return vim.startswith(word, 'unix:') or vim.list_contains(SCHEMES, word:match('^(%l+)://'))
end

--- Show a session with the agent `name`: the current one, another open one, or a new one.
---@param name string
local function show(name)
  local current = live.current()
  if current and M.of(current) == name then
    return open.show({})
  end
  for _, session in ipairs(live.chats()) do
    if M.of(session) == name then
      open.open(session.id, session.project, {})
      return
    end
  end
  open.open(stored.new_id(), stored.project_here(), { agent = name })
end

--- `:AgentChat`: show or hide the chat, optionally at a position or with an external agent.
---@param call sanderling.verbs.Call
function M.chat(call)
  local word = words.trimmed(call.args)
  if word == '' or vim.list_contains(config.POSITIONS, word) then
    open.toggle({ position = word ~= '' and word or nil })
  elseif is_address(word) then
    show(word)
  else
    ask({ type = 'list_agents' }, function(result)
      names = result.agents
      if vim.list_contains(result.agents, word) then
        show(word)
      else
        local known = vim.list_extend(vim.list_slice(config.POSITIONS), result.agents)
        vim.list_extend(known, ADDRESSES)
        message.tell(words.not_one_of('AgentChat', known, word), vim.log.levels.ERROR)
      end
    end, function(sentence)
      message.tell(sentence, vim.log.levels.ERROR)
    end)
  end
end

--- Let the user choose an external agent to chat with. The agents of open sessions are marked.
function M.choose()
  ask({ type = 'list_agents' }, function(result, is_here)
    names = result.agents
    local open_agents = vim.tbl_map(M.of, live.chats())
    if not is_here then
      return message.tell('Agents loaded. Run :Agent agents again to choose one.')
    end
    picker.choose(result.agents, {
      title = 'Agents',
      kind = 'sanderling_agent',
      line_of = function(name)
        local is_open = vim.list_contains(open_agents, name)
        return words.plain(is_open and name .. icons.separator .. 'open' or name)
      end,
      actions = { { name = 'Chat', run = show } },
    })
  end, function(sentence)
    message.tell(sentence, vim.log.levels.ERROR)
  end)
end

-- options of an agent -------------------------------------------------------------------------------------------------

---@param session sanderling.chat.session.Session?
---@return sanderling.GuestOption[]
local function options_of(session)
  return session and session.state.guest_options or {}
end

---@param option sanderling.GuestOption
---@return sanderling.GuestChoice[]
local function choices_of(option)
  return option.choices or { { value = 'true', title = 'on' }, { value = 'false', title = 'off' } }
end

---@param option sanderling.GuestOption
---@return string title of the current value
local function current_title(option)
  for _, choice in ipairs(choices_of(option)) do
    if choice.value == option.value then
      return choice.title
    end
  end
  return option.value
end

---@param session sanderling.chat.session.Session
---@param id string
---@param value string
local function set(session, id, value)
  session:act({ type = 'set_guest_option', id = id, value = value })
end

---@param session sanderling.chat.session.Session
---@param option sanderling.GuestOption
local function choose_value(session, option)
  picker.choose(choices_of(option), {
    title = words.plain(option.title),
    kind = 'sanderling_option',
    line_of = function(choice)
      local mark = choice.value == option.value and ' (current)' or ''
      local more = (choice.description or '') ~= '' and ': ' .. choice.description or ''
      return words.plain(choice.title .. mark .. more)
    end,
    actions = {
      {
        name = 'Set',
        run = function(choice)
          set(session, option.id, choice.value)
        end,
      },
    },
  })
end

---@param session sanderling.chat.session.Session
---@param list sanderling.GuestOption[]
local function choose_option(session, list)
  picker.choose(list, {
    title = 'Option',
    kind = 'sanderling_option',
    line_of = function(option)
      return words.plain(('%s: %s'):format(option.title, current_title(option)))
    end,
    actions = {
      {
        name = 'Change',
        run = function(option)
          choose_value(session, option)
        end,
      },
    },
  })
end

---@param list sanderling.GuestOption[]
---@param name string
---@return sanderling.GuestOption?
local function find(list, name)
  for _, option in ipairs(list) do
    if vim.list_contains({ option.id, option.title, option.category }, name) then
      return option
    end
  end
end

--- Set an option of the agent, as in `mode plan`, or let the user choose.
---@param call sanderling.verbs.Call
function M.set_or_choose_option(call)
  local session, list = call.session, options_of(call.session)
  local name, value = words.trimmed(call.args):match('^(%S+)%s*(.*)$')
  if #list == 0 then
    message.tell(
      M.of(session) == '' and "Sanderling's own agent has no options. See /settings." or NONE
    )
  elseif not name then
    choose_option(session, list)
  elseif value ~= '' then
    set(session, name, value)
  elseif find(list, name) then
    choose_value(session, assert(find(list, name)))
  else
    local known = vim.tbl_map(function(option)
      return option.id
    end, list)
    message.tell(words.not_one_of('Agent option', known, name), vim.log.levels.ERROR)
  end
end

--- Complete an option of the agent, then its values.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete_option(lead, line, pos)
  local list = options_of(live.current())
  local before = vim.split(words.trimmed(line:sub(1, pos - #lead)), '%s+')
  local option = find(list, before[#before])
  local all = option and choices_of(option) or list
  return words.beginning_with(
    vim.tbl_map(function(each)
      return option and each.value or each.id
    end, all),
    lead
  )
end

return M
