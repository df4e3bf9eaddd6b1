--- The places that an answer, a tool's result or other text names, as the quickfix list.
local M = {}

local api = vim.api
local browse = require('sanderling.chat.browse')
local entries = require('sanderling.access.entries')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local quickfix = require('sanderling.ui.quickfix')
local stored = require('sanderling.session.stored')
local tools = require('sanderling.transcript.blocks.tool')
local words = require('sanderling.ui.words')

local MAX_FACTS = 10 -- lines behind the output of a command

---@param where string
---@param lines string[]
---@param project string
---@param directory? string that the names may begin at, too
local function show(where, lines, project, directory)
  local items = entries.of(lines, project, { directory = directory })
  if #items == 0 then
    return message.tell(('No existing place is named in %s.'):format(where))
  end
  quickfix.show('Agent: places in ' .. where, items)
end

--- Return the text of the model in the rows `first` to `last` of a transcript, without its tool calls.
---@param session sanderling.chat.session.Session
---@param first integer row
---@param last integer
---@return string[] lines
local function answer_in(session, first, last)
  local lines = {}
  local function add(from, to)
    from, to = math.max(from, first), math.min(to, last)
    local more = from <= to and api.nvim_buf_get_lines(session.transcript_buf, from, to + 1, false)
    vim.list_extend(lines, more or {})
  end
  local transcript = session.transcript
  for _, piece in ipairs(transcript.pieces) do
    add(piece.first, piece.last)
  end
  if transcript.open and transcript.open.first then -- it is being written
    add(transcript.open.first, math.huge)
  end
  return lines
end

--- Return the rows `first` to `last` of a transcript without its tool calls.
---@param session sanderling.chat.session.Session
---@param first integer row
---@param last integer
---@return string[] lines
local function rows_in(session, first, last)
  local lines = {}
  for i, line in ipairs(api.nvim_buf_get_lines(session.transcript_buf, first, last + 1, false)) do
    if not tools.block_at(session.transcript, first + i - 1) then
      lines[#lines + 1] = line
    end
  end
  return lines
end

--- Return the directory of the shell behind a command, as its result states it.
---@param lines string[]
---@param project string
---@return string?
local function shell_directory(lines, project)
  for i = #lines, math.max(1, #lines - MAX_FACTS), -1 do
    local name = lines[i]:match('^%[.* · cwd: (.-)%]$')
    if name then
      name = name:gsub(' · .*', ''):gsub(' %(changed%)$', '')
      return name ~= 'the project root'
          and (name:find('^/') and name or vim.fs.joinpath(project, name))
        or nil
    end
  end
end

--- List the places in the full result of a tool use.
---@param session sanderling.chat.session.Session
---@param block sanderling.transcript.blocks.tool.Block
local function list_result(session, block)
  session:ask({ type = 'inspect_tool_use', id = block.id }, function(use, is_here)
    if is_here then
      local lines = words.lines_of(use.result)
      local directory = shell_directory(lines, session.project)
      local where = 'the result of ' .. words.first_line(block.title)
      show(where, lines, session.project, directory)
    end
  end)
end

--- List the places in the message or tool result under the cursor; outside of the transcript, in the last answer.
---@param session sanderling.chat.session.Session
function M.list(session)
  if api.nvim_get_current_buf() ~= session.transcript_buf then
    return show('the answer', answer_in(session, 0, math.huge), session.project)
  end
  local block = tools.block_at(session.transcript, vim.fn.line('.') - 1)
  if block then
    return list_result(session, block)
  end
  local first, last = browse.message_here(session)
  local lines = answer_in(session, first, last)
  if #lines == 0 then -- the user's message, or one of an earlier turn
    lines = rows_in(session, first, last)
  end
  show('the message', lines, session.project)
end

--- `:AgentPlaces`: list the places in the lines of `range` in this buffer, else as the key in the chat does.
---@param range? [integer, integer]
function M.command(range)
  local here = live.of_buffer(api.nvim_get_current_buf())
  local session = here or live.current()
  if range then
    local lines = api.nvim_buf_get_lines(0, range[1] - 1, range[2], false)
    local project, directory = here and here.project or stored.root_here(), nil
    if vim.bo.buftype == 'terminal' then
      directory =
        vim.fs.normalize(api.nvim_buf_get_name(0):match('^term://(.-)//%d+:') or vim.fn.getcwd())
    elseif not here then
      directory = vim.fn.getcwd()
    end
    return show('the lines', lines, project, directory)
  elseif not session then
    return message.tell('No answer yet. With a range, it takes the lines of this buffer.')
  end
  M.list(session)
end

return M
