--- Questions about code, asked where it stands, and their answers: in the chat, in a float beside the code, or in lines below it. An
--- answer outside of the chat is that of a session of its own, which the chat can take over; until then it is gone when it is closed,
--- but for its log.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local chat = require('sanderling.chat')
local config = require('sanderling.config')
local context = require('sanderling.prompt.context')
local floats = lazy('sanderling.asking.floats')
local below = lazy('sanderling.asking.below')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local operator = require('sanderling.ui.operator')
local regions = require('sanderling.rewrite.region')
local small = lazy('sanderling.prompt.small')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

--- A question: what it is about, and where it is answered.
---@class (exact) sanderling.asking.Question
---@field region sanderling.rewrite.region.Region
---@field has_lines boolean these go along
---@field answer 'chat'|'float'|'lines'
---@field session? sanderling.chat.session.Session that answers, once it is needed
---@field extra? sanderling.Selection[] what goes along besides

---@param buf integer
---@param range [integer, integer]
---@param has_lines boolean
---@param opts { answer?: 'chat'|'float'|'lines', extra?: sanderling.Selection[] }
---@return sanderling.asking.Question
local function new(buf, range, has_lines, opts)
  local is_ours = live.of_buffer(buf) ~= nil
  return {
    region = regions.lines(buf, range[1], range[2], not has_lines),
    has_lines = has_lines,
    answer = is_ours and 'chat' or opts.answer or config.options.answer,
    extra = opts.extra,
  }
end

--- The session that answers a question; it is begun when it is needed first.
---@param question sanderling.asking.Question
---@return sanderling.chat.session.Session
local function session_of(question)
  if not question.session then
    local is_chat = question.answer == 'chat'
    question.session = is_chat and chat.current_session()
      or chat.begin_hidden(nil, stored.project_here())
  end
  return question.session
end

--- Drop a question that nobody has asked: what was made for it goes.
---@param question sanderling.asking.Question
local function drop(question)
  question.region:forget()
  if question.answer ~= 'chat' and question.session then
    chat.remove(question.session)
  end
end

--- The lines that go along.
---@param question sanderling.asking.Question
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

--- Have a session that begins answer by the model of the current one, if that is about the same project.
---@param session sanderling.chat.session.Session
local function take_model(session)
  local current = live.current()
  local is_same = current and current ~= session and current.project == session.project
  if is_same and current.state.agent == '' and current.state.model ~= '' then
    session:act({ type = 'set_model', model = current.state.model })
  end
end

--- Send a question, and show its answer.
---@param question sanderling.asking.Question
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
  vim.schedule(function() -- `.` is set up before that, in this window
    show({ session = session, region = question.region, title = words.first_line(lines[1]) })
    if is_first then
      take_model(session)
    end
    session:send(lines, { selections = selections })
  end)
end

--- Let `.` ask the same about as many lines.
---@param lines string[]
---@param first integer line
---@param last integer
---@param question sanderling.asking.Question
local function arm(lines, first, last, question)
  local opts = { answer = question.answer }
  operator.arm(first, last, function()
    local range = { vim.fn.line("'["), vim.fn.line("']") }
    send(new(api.nvim_get_current_buf(), range, question.has_lines, opts), lines)
  end)
end

--- Ask what to ask, at the code.
---@param question sanderling.asking.Question
---@param on_send fun(lines: string[])
local function write(question, on_send)
  local first, last = question.region:rows()
  local session = session_of(question)
  local title = 'Ask'
  if question.has_lines then
    local name = vim.fs.basename(api.nvim_buf_get_name(question.region.buf))
    local told = last > first and '%s:%d-%d' or '%s:%d'
    title = 'Ask about ' .. told:format(name == '' and '[No Name]' or name, first + 1, last + 1)
  end
  small.open({
    title = title,
    session_id = session.id,
    row = last,
    on_send = on_send,
    on_leave = function()
      drop(question)
    end,
  })
end

--- Ask about lines of the current buffer, or without any. Without a text the small prompt opens.
---@param text string
---@param range? [integer, integer]
---@param opts? { answer?: 'chat', extra?: sanderling.Selection[] } where it is answered, unless the options say, and what goes along
function M.ask(text, range, opts)
  local buf, lnum = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)[1]
  local is_further = not range and text ~= '' and package.loaded['sanderling.asking.below'] ~= nil
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

--- The lines that are selected; visual mode, or select mode, ends.
---@return [integer, integer]
local function selected()
  local from, to = vim.fn.line('v'), vim.fn.line('.')
  vim.cmd('normal! \27')
  return { math.min(from, to), math.max(from, to) }
end

--- Begin the operator: a motion follows, or a selection is there.
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
