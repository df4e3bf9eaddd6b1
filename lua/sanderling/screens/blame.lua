--- :AgentBlame: which turn of the agent's wrote the lines of a buffer, as virtual text, and for one line in a float with
--- the prompt, from which a key opens the session at that turn. The host finds the lines by content.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_blame')
local group = api.nvim_create_augroup('sanderling_blame', {})

local MAX_TITLE_CELLS, MAX_PROMPT_LINES = 50, 20
local NO_FILE = 'This buffer is not a file.'
local NOTHING = 'The agent wrote no line of this file, as far as is recorded.'
local NOT_HERE = 'The agent did not write this line, as far as is recorded.'
local GONE = 'its session was deleted'
local NAMED = { { 'blame_open', 'opens the session' }, { 'close', 'closes' } }

---@param hunk sanderling.BlamedHunk
---@return string
local function cost_of(hunk)
  return hunk.is_priced and words.dollars(hunk.usd) or '$?'
end

--- Return who wrote a hunk: the external agent, the child, the model, where known.
---@param hunk sanderling.BlamedHunk
---@return string?
local function author_of(hunk)
  local names = {}
  for _, name in ipairs({ hunk.agent or '', hunk.child or '', hunk.model or '' }) do
    names[#names + 1] = name ~= '' and words.plain(name) or nil
  end
  return #names > 0 and table.concat(names, ' ') or nil
end

--- Return the virtual text behind the first line of a hunk.
---@param hunk sanderling.BlamedHunk
---@return string
local function label_of(hunk)
  local parts = {} ---@type string[]
  if hunk.number then
    parts[1] = words.fitting(words.plain(hunk.title or ''), MAX_TITLE_CELLS)
    parts[#parts + 1] = author_of(hunk)
    parts[#parts + 1] = cost_of(hunk)
    parts[#parts + 1] = hunk.outcome ~= 'kept' and hunk.outcome or nil
    parts[#parts + 1] = stored.age(os.time() - hunk.at)
  else
    parts = { GONE }
  end
  return table.concat(parts, icons.separator)
end

-- asking --------------------------------------------------------------------------------------------------------------

--- Ask for the authors of the lines of `buf`, as they are now.
---@param buf integer
---@param on_answer fun(blame: sanderling.Blame, is_here: boolean)
local function ask_about(buf, on_answer)
  local name = api.nvim_buf_get_name(buf)
  if name == '' or vim.bo[buf].buftype ~= '' then
    return message.tell(NO_FILE, vim.log.levels.WARN)
  end
  local lines = api.nvim_buf_get_lines(buf, 0, -1, true)
  local request = {
    type = 'blame_file',
    project = stored.project_here(),
    path = name,
    text = table.concat(lines, '\n') .. '\n',
  }
  local tick = api.nvim_buf_get_changedtick(buf)
  ask(request, function(blame, is_here)
    if not api.nvim_buf_is_loaded(buf) then
      return
    elseif api.nvim_buf_get_changedtick(buf) ~= tick then -- the lines of the answer are elsewhere by now
      return ask_about(buf, on_answer)
    end
    on_answer(blame, is_here)
  end, function(sentence)
    message.tell(sentence, vim.log.levels.WARN)
  end)
end

-- virtual text --------------------------------------------------------------------------------------------------------

local MARGIN = 3 -- a cell between a line and the label, and two blanks

---@type table<integer, table<integer, string>> the labels of buffers that show who wrote their lines, by mark
local shown = {}

---@param buf integer
local function hide(buf)
  shown[buf] = nil
  api.nvim_clear_autocmds({ group = group, buffer = buf })
  if api.nvim_buf_is_valid(buf) then
    api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  end
end

--- Draw a label behind a line, cut to the window's room.
---@param buf integer
---@param row integer from 0
---@param label string
---@param mark? integer
---@return integer mark
local function put(buf, row, label, mark)
  local cells = api.nvim_buf_call(buf, function()
    return vim.fn.strdisplaywidth(vim.fn.getline(row + 1))
  end)
  local width = words.width_of(buf)
  local room = width - cells % width - MARGIN
  return api.nvim_buf_set_extmark(buf, ns, row, 0, {
    id = mark,
    virt_text = { { '  ' .. words.fitting(label, math.max(room, 1)), 'AgentStatus' } },
    hl_mode = 'combine',
    strict = false,
  })
end

---@param buf integer
---@param blame sanderling.Blame
local function draw(buf, blame)
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  shown[buf] = {}
  local labels = {} ---@type table<integer, string>
  for _, lines in ipairs(blame.lines or {}) do
    local hunk = lines.hunk + 1
    labels[hunk] = labels[hunk] or label_of(blame.hunks[hunk])
    local count = lines.count > 1 and (' (%d lines)'):format(lines.count) or ''
    local label = labels[hunk] .. count
    shown[buf][put(buf, lines.first - 1, label)] = label
  end
end

api.nvim_create_autocmd('WinResized', {
  group = group,
  desc = 'Agent: fit who wrote the lines',
  callback = function()
    for buf, labels in pairs(shown) do
      for _, mark in ipairs(api.nvim_buf_get_extmarks(buf, ns, 0, -1, {})) do
        put(buf, mark[2], labels[mark[1]], mark[1])
      end
    end
  end,
})

---@param buf integer
local function refresh(buf)
  ask_about(buf, function(blame)
    if shown[buf] then
      draw(buf, blame)
    end
  end)
end

--- Show behind the lines of a buffer which turn wrote them, from now on.
---@param buf integer
---@param blame sanderling.Blame
local function show_in(buf, blame)
  api.nvim_clear_autocmds({ group = group, buffer = buf }) -- it may have been asked for twice
  draw(buf, blame)
  local function on(events, desc, callback)
    api.nvim_create_autocmd(
      events,
      { group = group, buffer = buf, desc = 'Agent: ' .. desc, callback = callback }
    )
  end
  on({ 'BufWritePost', 'FileChangedShellPost' }, 'update who wrote the lines', function()
    refresh(buf)
  end)
  on({ 'BufUnload', 'BufWipeout' }, 'forget who wrote the lines', function()
    hide(buf)
    vim.schedule(function() -- `:e!` unloads the buffer, and loads it again
      if api.nvim_buf_is_loaded(buf) then
        ask_about(buf, function(again)
          show_in(buf, again)
        end)
      end
    end)
  end)
end

--- Show behind the lines of the current buffer which turn wrote them, or hide that.
function M.toggle()
  local buf = api.nvim_get_current_buf()
  if shown[buf] then
    return hide(buf)
  end
  ask_about(buf, function(blame)
    if #(blame.lines or {}) == 0 then
      return message.tell(NOTHING)
    end
    show_in(buf, blame)
  end)
end

-- the turn ------------------------------------------------------------------------------------------------------------

---@type table<string, string> the turn to go to, by session, until its page of the history is shown
local wanted = {}

--- Go to the turn that is wanted in a session, or load the page before.
---@param session sanderling.chat.session.Session
local function go_on(session)
  local turn, transcript = wanted[session.id], session.transcript
  local win = vim.fn.win_findbuf(session.transcript_buf)[1]
  if not turn or not win then
    return
  end
  for _, each in ipairs(transcript.turns) do
    if each.id == turn then
      wanted[session.id] = nil
      api.nvim_set_current_win(win)
      vim.cmd.stopinsert()
      api.nvim_win_set_cursor(win, { each.first + 1, 0 })
      api.nvim_win_call(win, function()
        vim.cmd.normal({ 'zt', bang = true })
      end)
      return
    end
  end
  if transcript.has_earlier then
    transcript:ask_for_earlier()
  end
end

bus.subscribe('history_shown', function(session_id)
  if wanted[session_id] then
    vim.schedule(function()
      local session = live.find(session_id)
      if session then
        go_on(session)
      end
      if not session or not session.transcript.has_earlier then
        wanted[session_id] = nil
      end
    end)
  end
end)

--- Show the session of a hunk at the turn that made it.
---@param hunk sanderling.BlamedHunk
local function open(hunk)
  if not hunk.number then
    return message.tell(('The session %s was deleted.'):format(hunk.session_id))
  end
  wanted[hunk.session_id] = hunk.turn
  go_on(chat.open(hunk.session_id, hunk.project, {}))
end

-- the float -----------------------------------------------------------------------------------------------------------

---@param hunk sanderling.BlamedHunk
---@return string[]
local function lines_of(hunk)
  if not hunk.number then
    return { ('%s: %s'):format(hunk.session_id, GONE) }
  end
  local at = ('%s, %s'):format(os.date('%d %b %Y %H:%M', hunk.at), stored.age(os.time() - hunk.at))
  local author, cost = author_of(hunk) or 'unknown model', cost_of(hunk) .. ' for the turn'
  local facts = { author, cost, hunk.outcome, at }
  local lines = { table.concat(facts, icons.separator) }
  lines[2] = ('session %s, turn %d'):format(hunk.session_id, hunk.number)
  lines[3] = ''
  local prompt = words.lines_of(hunk.prompt or '')
  for i, line in ipairs(prompt) do
    if i > MAX_PROMPT_LINES then
      lines[#lines + 1] = icons.more
      break
    end
    lines[#lines + 1] = words.plain(line)
  end
  lines[#lines + 1] = ''
  for _, side in ipairs({ { '-', hunk.old, hunk.removed }, { '+', hunk.lines, hunk.added } }) do
    local sign, text, count = unpack(side, 1, 3)
    for _, line in ipairs(text or {}) do
      lines[#lines + 1] = sign .. words.plain(line)
    end
    local more = (count or 0) - #(text or {})
    if more > 0 then
      lines[#lines + 1] = ('%s%s %d more'):format(sign, icons.more, more)
    end
  end
  return lines
end

---@param blame sanderling.Blame
---@param lnum integer
---@return sanderling.BlamedHunk?
local function hunk_at(blame, lnum)
  for _, lines in ipairs(blame.lines or {}) do
    if lines.first <= lnum and lnum < lines.first + lines.count then
      return blame.hunks[lines.hunk + 1]
    end
  end
end

--- Show in a float which turn wrote the line under the cursor.
function M.show()
  local buf, lnum = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)[1]
  ask_about(buf, function(blame, is_here)
    local hunk = hunk_at(blame, lnum)
    if not hunk then
      return message.tell(#(blame.lines or {}) == 0 and NOTHING or NOT_HERE)
    elseif not is_here then
      return message.tell('Found who wrote the line. Run :AgentBlame! again to show it.')
    end
    local view
    view = page.view('Who wrote this', lines_of(hunk), 'blame', {
      place = 'blame',
      footer = float.naming(NAMED),
      actions = {
        blame_open = function()
          api.nvim_buf_delete(view, { force = true })
          open(hunk)
        end,
      },
    })
    vim.bo[view].syntax = 'diff'
  end)
end

return M
