--- The messages of each open session as data, kept from the events that the transcript draws.
local M = {}

local bus = require('sanderling.host.bus')

---@class (exact) sanderling.ToolCall
---@field id string
---@field tool string
---@field title string as in the transcript
---@field summary? string of its result; nil while it runs
---@field is_error? boolean
---@field is_denied? boolean

---@class (exact) sanderling.Message
---@field role 'user'|'assistant'
---@field text string
---@field id? string of a prompt
---@field is_steering? boolean the prompt was sent during a turn
---@field selections? sanderling.Selection[] attached to the prompt
---@field tool_calls? sanderling.ToolCall[] of the assistant, after its text
---@field stop_reason? string of the turn that ended with this message

---@class (exact) sanderling.extend.messages.Block text that streams
---@field id integer
---@field pieces string[]

---@class (exact) sanderling.extend.messages.Entry
---@field role 'user'|'assistant'
---@field prompt? sanderling.Prompt
---@field is_steering? boolean
---@field blocks sanderling.extend.messages.Block[]
---@field tool_calls sanderling.ToolCall[]
---@field stop_reason? string

---@class (exact) sanderling.extend.messages.Log
---@field entries sanderling.extend.messages.Entry[]
---@field tool_calls table<string, sanderling.ToolCall> running ones
---@field rewound table<string, true> prompts that were taken back, on pages that are not loaded
---@field is_between boolean a turn or prompt begins: the next text is a new message

---@type table<string, sanderling.extend.messages.Log> by session id
local logs = {}
---@type table<string, fun(is_loaded: boolean)[]> called when a page of the history is loaded, by session id
local waiting = {}

---@return sanderling.extend.messages.Log
local function new_log()
  return { entries = {}, tool_calls = {}, rewound = {}, is_between = true }
end

---@param log sanderling.extend.messages.Log
---@return sanderling.extend.messages.Entry
local function answer_of(log)
  if log.is_between or #log.entries == 0 then
    log.is_between = false
    table.insert(log.entries, { role = 'assistant', blocks = {}, tool_calls = {} })
  end
  return log.entries[#log.entries]
end

---@param log sanderling.extend.messages.Log
---@param prompt sanderling.Prompt
---@param is_steering? boolean
local function add_prompt(log, prompt, is_steering)
  log.is_between = true
  table.insert(log.entries, {
    role = 'user',
    prompt = prompt,
    is_steering = is_steering,
    blocks = {},
    tool_calls = {},
  })
end

--- Remove the message of the prompt and all after it.
---@param log sanderling.extend.messages.Log
---@param prompt_id string
---@return boolean is_found
local function cut(log, prompt_id)
  for i = #log.entries, 1, -1 do
    local prompt = log.entries[i].prompt
    if prompt and prompt.id == prompt_id then
      log.entries, log.is_between = vim.list_slice(log.entries, 1, i - 1), true
      return true
    end
  end
  return false
end

---@type table<string, fun(log: sanderling.extend.messages.Log, event: any)> by event type
local take = {}

function take.turn_started(log, event)
  log.tool_calls = {}
  if not event.is_continued then
    add_prompt(log, event.prompt)
  end
end

function take.prompt_steered(log, event)
  add_prompt(log, event.prompt, true)
end

function take.text_delta(log, event)
  local entry = answer_of(log)
  local block = entry.blocks[#entry.blocks]
  if not block or block.id ~= event.block_id then
    if #entry.tool_calls > 0 then -- the model has seen their results
      log.is_between = true
      entry = answer_of(log)
    end
    block = { id = event.block_id, pieces = {} }
    table.insert(entry.blocks, block)
  end
  table.insert(block.pieces, event.text)
end

function take.block_ended(log, event)
  local entry = log.entries[#log.entries]
  local block = entry and entry.blocks[#entry.blocks]
  if block and block.id == event.block_id then
    block.pieces = { table.concat(block.pieces) }
  end
end

--- An answer was cut off and begins again.
function take.answer_restarted(log, event)
  local entry = log.entries[#log.entries]
  if entry and entry.role == 'assistant' then
    entry.blocks = vim.tbl_filter(function(block)
      return block.id < event.block_id
    end, entry.blocks)
    if #entry.blocks == 0 and #entry.tool_calls == 0 then
      table.remove(log.entries)
      log.is_between = true
    end
  end
end

function take.tool_started(log, event)
  local call = { id = event.id, tool = event.tool, title = event.title }
  log.tool_calls[event.id] = call
  table.insert(answer_of(log).tool_calls, call)
end

function take.tool_ended(log, event)
  local call = log.tool_calls[event.id]
  if call then
    call.summary, log.tool_calls[event.id] = event.summary or '', nil
    call.is_error, call.is_denied = event.is_error or false, event.is_denied or false
  end
end

function take.turn_ended(log, event)
  local entry = log.entries[#log.entries]
  if entry and entry.role == 'assistant' then
    entry.stop_reason = event.stop_reason
  end
  log.is_between = true
end

function take.conversation_rewound(log, event)
  if event.prompt_id and not cut(log, event.prompt_id) then
    log.entries, log.is_between, log.rewound[event.prompt_id] = {}, true, true
  end
end

function take.history_shown(log, event)
  local page = new_log()
  for _, each in ipairs(event.events) do
    if take[each.type] then
      take[each.type](page, each)
    end
  end
  for prompt_id in pairs(log.rewound) do
    if not cut(page, prompt_id) then
      page.entries, page.rewound[prompt_id] = {}, true
    end
  end
  log.entries, log.rewound = vim.list_extend(page.entries, log.entries), page.rewound
end

---@param session_id string
---@param is_loaded boolean
local function stop_waiting(session_id, is_loaded)
  local fns = waiting[session_id] or {}
  waiting[session_id] = nil
  for _, fn in ipairs(fns) do
    fn(is_loaded)
  end
end

for type, fn in pairs(take) do
  bus.subscribe(type, function(session_id, event)
    logs[session_id] = logs[session_id] or new_log()
    fn(logs[session_id], event)
    if type == 'history_shown' then
      stop_waiting(session_id, true)
    end
  end)
end

bus.subscribe('local_closed', function(session_id)
  logs[session_id] = nil
  stop_waiting(session_id, false)
end)

---@param entry sanderling.extend.messages.Entry
---@return sanderling.Message
local function message_of(entry)
  if entry.prompt then
    return {
      role = 'user',
      text = entry.prompt.text,
      id = entry.prompt.id,
      is_steering = entry.is_steering or false,
      selections = vim.deepcopy(entry.prompt.selections or {}),
    }
  end
  local texts = vim.tbl_map(function(block)
    return table.concat(block.pieces)
  end, entry.blocks)
  return {
    role = 'assistant',
    text = table.concat(texts, '\n\n'),
    tool_calls = vim.deepcopy(entry.tool_calls),
    stop_reason = entry.stop_reason,
  }
end

--- Return the last messages that are loaded, oldest first.
---@param session_id string
---@param count? integer default all
---@return sanderling.Message[]
function M.of(session_id, count)
  local entries = (logs[session_id] or new_log()).entries
  local first = count and math.max(1, #entries - count + 1) or 1
  return vim.tbl_map(message_of, vim.list_slice(entries, first))
end

--- Call `fn` when the next page of the session's history is loaded, or with `false` when the session is closed.
---@param session_id string
---@param fn fun(is_loaded: boolean)
function M.when_page(session_id, fn)
  waiting[session_id] = vim.list_extend(waiting[session_id] or {}, { fn })
end

return M
