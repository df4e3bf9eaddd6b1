--- :AgentUndo, :AgentRedo and :Agent rewind: undo the agent's changes; a rewind shows a preview first.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')
local ask = require('sanderling.host.ask')
local float = require('sanderling.ui.float')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local picker = lazy('sanderling.picker')
local refresh = require('sanderling.host.refresh')
local words = require('sanderling.ui.words')

local NO_TURN = 'Nothing to undo yet.'
local NAMED = {
  { 'rewind_both', 'both' },
  { 'rewind_conversation', 'conversation' },
  { 'rewind_files', 'files' },
  { 'close', 'close' },
}

---@param turn sanderling.TurnShown
---@return string
local function name_of(turn)
  return ('%d %s'):format(turn.number, words.plain(turn.text))
end

---@param session sanderling.chat.session.Session
---@param on_answer fun(turns: sanderling.TurnShown[], is_here: boolean)
local function ask_turns(session, on_answer)
  session:ask({ type = 'list_changes' }, function(changes, is_here)
    local turns = vim.iter(changes.turns):rev():totable()
    on_answer(turns, is_here)
  end)
end

--- Find a turn by its number; words after the number are ignored.
---@param turns sanderling.TurnShown[]
---@param name string
---@return sanderling.TurnShown?
local function find(turns, name)
  local number = tonumber(name:match('^%s*(%d+)'))
  return vim.iter(turns):find(function(turn)
    return turn.number == number
  end)
end

---@param type 'undo_turn'|'redo_turn'
---@param call sanderling.verbs.Call
local function act_on_turn(type, call)
  if call.args == '' then
    call.session:act({ type = type })
    return
  end
  ask_turns(call.session, function(turns)
    local turn = find(turns, call.args)
    if turn then
      call.session:act({ type = type, turn = turn.turn })
    else
      call.session:say('warning', ('No turn %s in this session.'):format(call.args))
    end
  end)
end

---@param call sanderling.verbs.Call
function M.undo(call)
  act_on_turn('undo_turn', call)
end

---@param call sanderling.verbs.Call
function M.redo(call)
  act_on_turn('redo_turn', call)
end

-- the preview ---------------------------------------------------------------------------------------------------------

---@param preview sanderling.RewindPreview
---@return string[]
local function lines_of(preview)
  local turns = preview.turns == 1 and 'turn' or ('%d turns'):format(preview.turns)
  local lines = { ('Back to before: %s'):format(words.plain(preview.prompt)), '' }
  lines[#lines + 1] = ('Conversation: %s'):format(
    preview.refusal and words.plain(preview.refusal) or 'without the last ' .. turns
  )
  local files = preview.files or {}
  if #files == 0 then
    lines[#lines + 1] = 'Files: nothing to restore'
  else
    vim.list_extend(lines, { '', 'Files:' })
  end
  for _, file in ipairs(files) do
    lines[#lines + 1] = '  ' .. words.restored(file)
  end
  return lines
end

---@param session sanderling.chat.session.Session
---@param prompt_id string
---@param preview sanderling.RewindPreview
local function show(session, prompt_id, preview)
  vim.cmd.stopinsert()
  local buf
  local function rewinding(what)
    return function()
      api.nvim_buf_delete(buf, { force = true })
      session:act({ type = 'rewind', prompt_id = prompt_id, what = what })
    end
  end
  buf = page.view('Rewind', lines_of(preview), 'rewind', {
    place = 'rewind',
    footer = float.naming(NAMED),
    actions = {
      rewind_both = rewinding('both'),
      rewind_conversation = rewinding('conversation'),
      rewind_files = rewinding('files'),
    },
  })
end

---@param session sanderling.chat.session.Session
---@param turn sanderling.TurnShown
local function preview(session, turn)
  session:ask({ type = 'preview_rewind', prompt_id = turn.turn }, function(found, is_here)
    if is_here then
      locked.retry(function()
        show(session, turn.turn, found)
      end, log.note_defect)
    else
      message.tell('Rewind preview loaded. Run :Agent rewind again to show it.')
    end
  end)
end

--- Let the user choose the prompt to rewind to before. A picker's preview says what that would do.
---@param session sanderling.chat.session.Session
---@param turns sanderling.TurnShown[]
local function choose(session, turns)
  picker.choose(turns, {
    title = 'Rewind to before which prompt?',
    kind = 'sanderling_turn',
    line_of = function(turn)
      return ('turn %d: %s'):format(turn.number, words.plain(turn.text))
    end,
    preview = function(turn, on_text)
      local request = { type = 'preview_rewind', session_id = session.id, prompt_id = turn.turn }
      ask(request, function(found)
        on_text(table.concat(lines_of(found), '\n'))
      end, on_text)
    end,
    actions = {
      {
        name = 'Rewind',
        run = function(turn)
          preview(session, turn)
        end,
      },
    },
  })
end

--- Show what rewinding to before a prompt would do, and let the user choose; without a turn, ask for that first.
---@param call sanderling.verbs.Call
function M.rewind(call)
  local session = call.session
  ask_turns(session, function(turns, is_here)
    if #turns == 0 then
      message.tell(NO_TURN)
    elseif call.args ~= '' then
      local turn = find(turns, call.args)
      if turn then
        preview(session, turn)
      else
        session:say('warning', ('No turn %s in this session.'):format(call.args))
      end
    elseif is_here then
      choose(session, turns)
    end
  end)
end

-- completion ----------------------------------------------------------------------------------------------------------

---@type table<sanderling.chat.session.Session, string[]> turns for completion, as of the last list
local known = setmetatable({}, { __mode = 'k' })

---@param session sanderling.chat.session.Session
local function refresh_turns(session)
  refresh({ type = 'list_changes', session_id = session.id }, function(changes)
    known[session] = vim.iter(changes.turns):rev():map(name_of):totable()
  end)
end

--- Complete a turn by its number or by words of its prompt.
---@param lead string
---@return string[]
function M.complete(lead)
  local session = live.current()
  if not session then
    return {}
  end
  refresh_turns(session)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, lead) or name:lower():find(lead:lower(), 1, true) ~= nil
  end, known[session] or {})
end

return M
