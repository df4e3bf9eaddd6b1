--- Answers in virtual lines below the code in question. Buffer and cursor do not change.
local M = {}

local api = vim.api
local sessions = require('sanderling.inline.sessions')
local bus = require('sanderling.host.bus')
local icons = require('sanderling.ui.icons')
local keys = require('sanderling.ui.keys')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local preview = require('sanderling.inline.preview')
local regions = require('sanderling.inline.region')
local edits = require('sanderling.inline.edits')
local states = require('sanderling.session.state')
local virtual = require('sanderling.transcript.virtual')
local words = require('sanderling.ui.words')

local DRAW_MS = 40 -- between two drawings, at least
local PAUSE_FACTOR = 10 -- and this many times as long as the last one took, so that keys come first
local MAX_BYTES = 200 * 1024
local MARGIN = 4 -- free cells at the right

---@class (exact) sanderling.inline.below.Answer: sanderling.inline.floats.Shown
---@field blocks { id: integer, text: string }[] of the model's words
---@field problem string why it ended early
---@field is_due boolean a drawing is scheduled
---@field pause_ms integer before the next drawing
---@field mark? integer
---@field painted? sanderling.transcript.virtual.Known

---@type table<string, sanderling.inline.below.Answer> by session
local answers = {}

---@param buf integer
---@return sanderling.inline.below.Answer[]
local function answers_in(buf)
  return regions.of_buffer(answers, buf)
end

--- Return the answer at the cursor, or the only one in the buffer unless `is_at_cursor`.
---@param is_at_cursor? boolean
---@return sanderling.inline.below.Answer?
local function here(is_at_cursor)
  return regions.here(answers_in(api.nvim_get_current_buf()), is_at_cursor)
end

-- text ----------------------------------------------------------------------------------------------------------------

---@param answer sanderling.inline.below.Answer
---@return string
local function doing(answer)
  local state = answer.session.state
  if #state.questions > 0 then
    return 'Waiting for you: :Agent question'
  elseif #state.tools > 0 then
    return 'Uses ' .. words.plain(state.tools[#state.tools].name)
  end
  return #answer.blocks > 0 and 'Writing' or 'Asked'
end

---@param answer sanderling.inline.below.Answer
---@return sanderling.inline.preview.Chunks
local function status_of(answer)
  local state = answer.session.state
  if states.is_busy(state) then
    local text = doing(answer) .. icons.separator .. keys.hint('stop', ':AgentStop', 'stops')
    return { { text, 'AgentBusy' } }
  end
  local hints = {
    keys.hint('close', ':AgentReject', 'closes'),
    keys.hint('answer_carry', ':AgentSessions', 'to the chat'),
    keys.hint('answer_further', ':AgentAsk', 'follow-up'),
  }
  local usage = state.usage
  if usage and usage.is_priced then
    hints[#hints + 1] = words.dollars(usage.cost_usd) -- last, because a narrow window cuts the end
  end
  return { { table.concat(hints, icons.separator), 'AgentStatus' } }
end

---@param answer sanderling.inline.below.Answer
---@return sanderling.inline.preview.Chunks[]
local function lines_of(answer)
  local buf = answer.region.buf
  local texts = vim.tbl_map(function(block)
    local lines = vim.split(words.trimmed(block.text), '\n', { plain = true })
    return table.concat(
      vim.tbl_map(function(line)
        return (words.expanded(line, vim.bo[buf].tabstop, 0))
      end, lines),
      '\n'
    )
  end, answer.blocks)
  local cells = words.width_of(buf) - MARGIN
  local said, painted = virtual.lines(table.concat(texts, '\n\n'), cells, answer.painted)
  answer.painted = painted
  local is_whole = not states.is_busy(answer.session.state)
  local lines = { { { icons.header .. words.plain(answer.title), 'AgentEditTitle' } } }
  local room = preview.room(preview.height_of(buf), is_whole)
  vim.list_extend(
    lines,
    preview.bounded(said, room, is_whole, function(line)
      return vim.list_extend({ { '  ', 'AgentAnswer' } }, line)
    end)
  )
  if answer.problem ~= '' then
    lines[#lines + 1] = { { '  ' .. words.plain(answer.problem), 'AgentWarning' } }
  end
  lines[#lines + 1] = status_of(answer)
  return lines
end

---@param answer sanderling.inline.below.Answer
local function draw(answer)
  local began = vim.uv.hrtime()
  local first, last = answer.region:rows()
  if first then
    local lines = lines_of(answer)
    answer.mark = preview.put(answer.region.buf, last, answer.mark, lines)
    preview.reveal(answer.region.buf, first, last, #lines)
  end
  local took_ms = (vim.uv.hrtime() - began) / 1e6
  answer.pause_ms = math.max(DRAW_MS, math.floor(PAUSE_FACTOR * took_ms))
end

---@param answer sanderling.inline.below.Answer
local function draw_soon(answer)
  if answer.is_due then
    return
  end
  answer.is_due = true
  vim.defer_fn(function()
    locked.retry(function()
      answer.is_due = false
      if answers[answer.session.id] == answer then
        draw(answer)
      end
    end, log.note_defect)
  end, answer.pause_ms)
end

-- keys ----------------------------------------------------------------------------------------------------------------

---@param answer sanderling.inline.below.Answer
local function forget(answer)
  answers[answer.session.id] = nil
  preview.clear(answer.region.buf, answer.mark)
  M.update_keys(answer.region.buf)
end

---@param answer sanderling.inline.below.Answer
local function close(answer)
  forget(answer)
  sessions.finish(answer)
end

--- Close the answer at the cursor; elsewhere type the key as usual.
local function close_here()
  local answer = here(true)
  if answer then
    close(answer)
  else
    api.nvim_feedkeys('q', 'ni', false)
  end
end

---@param fn fun(answer: sanderling.inline.below.Answer)
---@return fun()
local function at_answer(fn)
  return function()
    local answer = here()
    if answer then
      fn(answer)
    end
  end
end

---@type table<string, fun()>
local actions = {
  close = close_here,
  answer_carry = at_answer(function(answer)
    sessions.carry(answer, function()
      forget(answer)
    end)
  end),
  answer_further = at_answer(function(answer)
    sessions.ask_further(answer)
  end),
  stop = function()
    local answer = here()
    if answer and states.is_busy(answer.session.state) then
      answer.session:stop()
    else
      edits.stop()
    end
  end,
}

--- Set the keys of a buffer's answers, or remove them.
---@param buf integer
function M.update_keys(buf)
  local has_answers = #answers_in(buf) > 0
  if has_answers then
    keys.renew(buf, 'asked')
  end
  keys.keep(buf, 'asked', function()
    return has_answers
  end, actions)
  if not has_answers then
    keys.renew(buf, 'edit')
    edits.update_keys(buf)
  end
end

---@return integer[] buffers with answers, some of them several times
local function buffers()
  return vim.tbl_map(function(answer)
    return answer.region.buf
  end, vim.tbl_values(answers))
end

-- If the key that ends a macro were mapped, it would become part of the macro.
api.nvim_create_autocmd('RecordingEnter', {
  desc = 'Agent: unmap the key that ends a macro',
  callback = function()
    for _, buf in ipairs(buffers()) do
      for _, lhs in ipairs(keys.list(keys.chosen.close)) do
        pcall(api.nvim_buf_del_keymap, buf, 'n', lhs)
      end
    end
  end,
})
api.nvim_create_autocmd('RecordingLeave', {
  desc = 'Agent: map the key that closes an answer',
  callback = vim.schedule_wrap(function()
    vim.iter(buffers()):each(M.update_keys)
  end),
})

-- Edits use one of these keys, and remove it when they end.
api.nvim_create_autocmd('User', {
  pattern = 'AgentEditEnded',
  desc = 'Agent: restore the keys of answers',
  callback = function(args)
    M.update_keys(args.data.buf)
  end,
})

-- events --------------------------------------------------------------------------------------------------------------

---@param type string
---@param change fun(answer: sanderling.inline.below.Answer, event: any)
local function on(type, change)
  bus.subscribe(type, function(session_id, event)
    local answer = answers[session_id]
    if answer then
      change(answer, event)
      draw_soon(answer)
    end
  end)
end

on('turn_started', function(answer, event)
  answer.blocks, answer.problem = {}, ''
  answer.title = words.first_line(event.prompt.text)
end)

on('text_delta', function(answer, event)
  local block = answer.blocks[#answer.blocks]
  if not block or block.id ~= event.block_id then
    block = { id = event.block_id, text = '' }
    table.insert(answer.blocks, block)
  end
  block.text = (block.text .. event.text):sub(1, MAX_BYTES)
end)

on('answer_restarted', function(answer, event)
  answer.blocks = vim.tbl_filter(function(block)
    return block.id < event.block_id
  end, answer.blocks)
end)

on('error_occurred', function(answer, event)
  answer.problem = words.trimmed(('%s %s'):format(event.message, event.remedy))
end)

on('local_failed', function(answer, event)
  answer.problem = event.message
end)

on('notice', function(answer, event)
  answer.problem = event.level == 'warning' and event.text or answer.problem
end)

for _, type in ipairs({
  'local_prompt_sent',
  'tool_started',
  'tool_ended',
  'turn_ended',
  'approval_requested',
  'approval_settled',
  'usage_updated',
}) do
  on(type, function() end)
end

bus.subscribe('local_closed', function(session_id)
  local answer = answers[session_id]
  if answer then
    forget(answer)
    answer.region:forget()
  end
end)

-- opening and closing -------------------------------------------------------------------------------------------------

--- Show an answer below the lines in question.
---@param shown sanderling.inline.floats.Shown
function M.open(shown)
  local buf = shown.region.buf
  for _, other in ipairs(answers_in(buf)) do
    local first, last = other.region:rows()
    local from, to = shown.region:rows()
    if other.session ~= shown.session and first and from and first <= to and last >= from then
      close(other)
    end
  end
  local fields = { blocks = {}, problem = '', is_due = false, pause_ms = DRAW_MS }
  local answer = vim.tbl_extend('error', shown, fields) --[[@as sanderling.inline.below.Answer]]
  answers[shown.session.id] = answer
  draw_soon(answer)
  M.update_keys(buf)
  api.nvim_buf_attach(buf, false, {
    on_detach = vim.schedule_wrap(function()
      if answers[shown.session.id] == answer and not answer.region:rows() then
        close(answer)
      end
    end),
  })
end

--- Send a follow-up if there is an answer at the cursor.
---@param text string
---@return boolean is_done
function M.ask_here(text)
  local answer = here(true)
  if answer then
    answer.session:send(vim.split(text, '\n', { plain = true }))
  end
  return answer ~= nil
end

--- Close answers in the buffer.
---@param which sanderling.inline.region.Which
---@return boolean is_done
function M.reject(which)
  local list = regions.chosen(answers_in(api.nvim_get_current_buf()), which)
  for _, answer in ipairs(list) do
    close(answer)
  end
  return #list > 0
end

return M
