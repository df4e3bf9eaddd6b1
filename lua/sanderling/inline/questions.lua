--- Inline questions about code, and their answers: in the chat, in a float at the code, or in lines below it. An answer outside the chat
--- has its own session, which the chat can take over. Otherwise closing the answer ends the session, and only its log is kept.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local chat = require('sanderling.chat')
local config = require('sanderling.config')
local context = require('sanderling.prompt.context')
local floats = lazy('sanderling.inline.floats')
local below = lazy('sanderling.inline.below')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local operator = require('sanderling.ui.operator')
local preview = require('sanderling.inline.preview')
local regions = require('sanderling.inline.region')
local small = lazy('sanderling.prompt.small')
local sessions = lazy('sanderling.inline.sessions')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

--- A question about code, and where it is answered.
---@class (exact) sanderling.inline.questions.Question
---@field region sanderling.inline.region.Region
---@field has_lines boolean attach the lines
---@field answer 'chat'|'float'|'lines'
---@field session? sanderling.chat.session.Session created when first needed
---@field extra? sanderling.Selection[] other attachments

---@param buf integer
---@param range [integer, integer]
---@param has_lines boolean
---@param opts { answer?: 'chat'|'float'|'lines', extra?: sanderling.Selection[] }
---@return sanderling.inline.questions.Question
local function new(buf, range, has_lines, opts)
  local is_ours = live.of_buffer(buf) ~= nil
  return {
    region = regions.lines(buf, range[1], range[2], not has_lines),
    has_lines = has_lines,
    answer = is_ours and 'chat' or opts.answer or config.options.answer,
    extra = opts.extra,
  }
end

--- Return the session for a question, starting it when it is first needed.
---@param question sanderling.inline.questions.Question
---@return sanderling.chat.session.Session
local function session_of(question)
  if not question.session then
    local is_chat = question.answer == 'chat'
    question.session = is_chat and chat.current_session()
      or chat.begin_hidden(nil, stored.project_here())
  end
  return question.session
end

---@param question sanderling.inline.questions.Question
local function drop(question)
  question.region:forget()
  if question.answer ~= 'chat' and question.session then
    chat.remove(question.session)
  end
end

--- Return the attachments of a question.
---@param question sanderling.inline.questions.Question
---@return sanderling.Selection[]? selections
---@return string? error
local function selections_of(question)
  local selections = vim.list_slice(question.extra or {})
  local first, last = question.region:rows()
  if question.has_lines and first then
    local project = session_of(question).project
    local selection, err = context.selection(question.region.buf, first + 1, last + 1, project)
    if not selection then
      return nil, err
    end
    table.insert(selections, 1, selection)
  end
  return selections
end

--- Send a question and show its answer.
---@param question sanderling.inline.questions.Question
---@param lines string[]
local function send(question, lines)
  local session = session_of(question)
  local is_first = session.is_fresh
  local selections, err = selections_of(question)
  if question.answer == 'chat' then
    question.region:forget()
    chat.show({ focus = false })
    if selections then
      session:send(lines, { selections = selections })
    else
      session:refuse(assert(err))
    end
    return
  elseif not selections then
    drop(question)
    return message.tell(assert(err), vim.log.levels.ERROR)
  end
  local show = question.answer == 'float' and floats.open or below.open
  vim.schedule(function() -- after `.` is set up in this window
    show({ session = session, region = question.region, title = words.first_line(lines[1]) })
    if is_first then
      sessions.take_model(session)
    end
    session:send(lines, { selections = selections })
  end)
end

--- Make `.` ask the same about as many lines.
---@param lines string[]
---@param first integer line
---@param last integer
---@param question sanderling.inline.questions.Question
local function arm(lines, first, last, question)
  local opts = { answer = question.answer }
  operator.arm(first, last, function()
    local range = { vim.fn.line("'["), vim.fn.line("']") }
    send(new(api.nvim_get_current_buf(), range, question.has_lines, opts), lines)
  end)
end

--- Open the small prompt at the code.
---@param question sanderling.inline.questions.Question
---@param on_send fun(lines: string[])
local function write(question, on_send)
  local first, last = question.region:rows()
  local session = session_of(question)
  if first then
    preview.reveal(question.region.buf, first, last, small.rows())
  end
  small.open({
    title = question.has_lines and regions.title('Ask about', question.region) or 'Ask',
    session_id = session.id,
    row = last,
    on_send = on_send,
    on_leave = function()
      drop(question)
    end,
  })
end

--- Ask about lines of the current buffer, or without lines. Without a text, open the small prompt.
---@param text string
---@param range? [integer, integer]
---@param opts? { answer?: 'chat', extra?: sanderling.Selection[] } where to answer instead of the option's place, and attachments
function M.ask(text, range, opts)
  local buf, lnum = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)[1]
  local is_further = not range and text ~= '' and package.loaded['sanderling.inline.below'] ~= nil
  if is_further and below.ask_here(text) then
    return
  end
  local question = new(buf, range or { lnum, lnum }, range ~= nil, opts or {})
  local function go(lines)
    local first, last = question.region:rows()
    if first then
      arm(lines, first + 1, last + 1, question)
    end
    send(question, lines)
  end
  if text ~= '' then
    go(vim.split(text, '\n', { plain = true }))
  else
    write(question, go)
  end
end

---@return [integer, integer]
local function selected()
  local from, to = vim.fn.line('v'), vim.fn.line('.')
  vim.cmd('normal! \27')
  return { math.min(from, to), math.max(from, to) }
end

--- Start the operator on the selection, or on the motion that follows.
---@param ask fun(range: [integer, integer])
function M.operate(ask)
  if api.nvim_get_mode().mode:find('^[vVsS\22\19]') then
    return ask(selected())
  end
  operator.start(function()
    ask({ vim.fn.line("'["), vim.fn.line("']") })
  end)
end

return M
