--- Notes next to the mentions in a prompt: the size of what each attaches, or why it attaches nothing.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local host = require('sanderling.host')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local mentions = require('sanderling.prompt.mentions')
local processes = require('sanderling.access.process')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_mentions')

local PAUSE_MS = 150 -- after the last key
local BYTES_PER_TOKEN = 4
local MAX_PATHS = 300 -- per mention
local FRESH_MS = 5000 -- before a slow mention is resolved again

---@type table<integer, uv.uv_timer_t> by buffer
local timers = {}
---@type table<string, boolean> by session and path: does a rule keep the file from the model?
local kept = {}

---@param session_id string
---@param path string
local function key_of(session_id, path)
  return session_id .. '\0' .. path
end

--- Ask the host about files whose rules are unknown, then draw again.
---@param session sanderling.chat.session.Session
---@param paths string[]
---@param draw fun()
local function check(session, paths, draw)
  if #paths == 0 or not session.is_open then
    return
  end
  local request = { type = 'check_mentions', session_id = session.id, paths = paths }
  host.request(request, function(result)
    for _, path in ipairs(not result.error and paths or {}) do
      kept[key_of(session.id, path)] = vim.list_contains(result.paths, path)
    end
    if not result.error then
      draw()
    end
  end)
end

--- Return the files in an attached list of places or difference, or the selection's own file.
---@param selection sanderling.Selection
---@return string[]
local function paths_of(selection)
  if not vim.startswith(selection.path, '@') then
    return { selection.path }
  end
  local is_difference = selection.filetype == 'diff'
  local pattern = is_difference and '\n[%+%-][%+%-][%+%-] [ab]/([^\n]+)' or '\n([^\n:]+):%d+:'
  local paths, seen = {}, {} ---@type string[], table<string, true>
  for path in ('\n' .. selection.text):gmatch(pattern) do
    if not seen[path] and #paths < MAX_PATHS then
      paths[#paths + 1], seen[path] = path, true
    end
  end
  return paths
end

---@class (exact) sanderling.prompt.noting.Looked a resolved mention
---@field began_ms number
---@field selection? sanderling.Selection
---@field size_bytes? integer if only the host can resolve it
---@field problem? string
---@field is_known boolean

---@type table<string, sanderling.prompt.noting.Looked> by session and mention
local looked = {}

---@param mention sanderling.prompt.mentions.Mention
---@param session sanderling.chat.session.Session
---@return sanderling.Selection? selection
---@return string? problem
local function resolve(mention, session)
  local ok, selection, problem = pcall(mentions.resolve, mention, session)
  if ok then
    return selection, problem
  end
  return nil, words.first_line(tostring(selection))
end

--- Ask the host for the size of a mentioned session.
---@param mention sanderling.prompt.mentions.Mention
---@param known sanderling.prompt.noting.Looked
---@param draw fun()
local function measure(mention, known, draw)
  local id = mention.name:sub(#'session:' + 1)
  host.request({ type = 'measure_session', session_id = id }, function(result)
    known.size_bytes, known.problem, known.is_known = result.size_bytes, result.error, true
    draw()
  end)
end

--- Return the last result for a slow mention, and resolve it again in the background from time to time.
---@param mention sanderling.prompt.mentions.Mention
---@param session sanderling.chat.session.Session
---@param draw fun()
---@return sanderling.prompt.noting.Looked
local function look_later(mention, session, draw)
  local key, now = key_of(session.id, mention.text), vim.uv.now()
  local known = looked[key] or { is_known = false, began_ms = -FRESH_MS }
  looked[key] = known
  if now - known.began_ms >= FRESH_MS then
    known.began_ms = now
    if mentions.is_hosts(mention) then
      measure(mention, known, draw)
      return known
    end
    processes.in_background(function()
      known.selection, known.problem = resolve(mention, session)
      known.is_known = true
      vim.schedule(draw)
    end)
  end
  return known
end

---@param mention sanderling.prompt.mentions.Mention
---@param session sanderling.chat.session.Session
---@param unknown string[] receives files whose rules are unknown
---@param draw fun()
---@return [string, string]? chunk
local function note_of(mention, session, unknown, draw)
  local plugins, name = mentions.plugins(mention, session.id)
  if plugins and name ~= '' then -- resolved only when the prompt is sent
    return { words.plain(plugins.desc), 'AgentPlaceholder' }
  end
  local late = mentions.is_looked_up_late(mention)
  local selection, problem, size_bytes ---@type sanderling.Selection?, string?, integer?
  if late then
    local known = look_later(mention, session, draw)
    if not known.is_known then
      return { late, 'AgentPlaceholder' }
    end
    selection, problem, size_bytes = known.selection, known.problem, known.size_bytes
  else
    selection, problem = resolve(mention, session)
  end
  for _, path in ipairs(selection and paths_of(selection) or {}) do
    local is_kept = kept[key_of(session.id, path)]
    if is_kept == nil then
      unknown[#unknown + 1] = path
    elseif is_kept then
      local what = path == selection.path and 'it' or path
      problem = ('a rule keeps %s from the model'):format(what)
    end
  end
  if problem then
    return { ('%s %s'):format(icons.failed, problem), 'AgentWarning' }
  elseif selection and selection.media_type then
    return { require('sanderling.prompt.images').size(selection), 'AgentPlaceholder' }
  elseif selection or size_bytes then
    local tokens = math.ceil((size_bytes or #selection.text) / BYTES_PER_TOKEN)
    local size = ('~%s token%s'):format(words.short(tokens), tokens == 1 and '' or 's')
    local title = size_bytes and late
    return { title and ('%s, %s'):format(size, title) or size, 'AgentPlaceholder' }
  end
end

--- Forget results for a session, except for mentions that are still in the prompt.
---@param session_id string
---@param seen? table<string, true> mentions in the prompt; nil: forget all
local function forget(session_id, seen)
  local prefix = key_of(session_id, '')
  for key in pairs(looked) do
    if vim.startswith(key, prefix) and not (seen and seen[key:sub(#prefix + 1)]) then
      looked[key] = nil
    end
  end
  for key in pairs(not seen and kept or {}) do
    if vim.startswith(key, prefix) then
      kept[key] = nil
    end
  end
end

bus.subscribe('local_closed', function(session_id)
  forget(session_id)
end)

local MIN_CELLS = 4 -- for notes behind the text of a line

--- Return the number of cells behind the text of a line and below it, in the narrowest window.
---@param buf integer
---@param row integer
---@return integer behind
---@return integer below
local function room_at(buf, row)
  local behind, below = vim.o.columns, vim.o.columns
  local last = #api.nvim_buf_get_lines(buf, row, row + 1, true)[1]
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    local info, pos = vim.fn.getwininfo(win)[1], vim.fn.screenpos(win, row + 1, math.max(last, 1))
    if pos.row > 0 then -- a blank follows the text
      behind = math.min(behind, info.wincol + info.width - pos.endcol - 2)
    end
    below = math.min(below, info.width)
  end
  return behind, below
end

---@class (exact) sanderling.prompt.noting.Note
---@field mention string
---@field chunk [string, string]

--- Return the notes of a line as virtual text: as many as there is room for, and an ellipsis if there are more.
---@param notes sanderling.prompt.noting.Note[]
---@param room integer
---@return [string, string][]
local function fitted(notes, room)
  local chunks = {} ---@type [string, string][]
  for i, note in ipairs(notes) do
    local subject = #notes > 1 and note.mention .. ' ' or ''
    local text = '  ' .. words.plain(subject .. note.chunk[1])
    local more = i < #notes and ' ' .. icons.more or ''
    local width = api.nvim_strwidth(text)
    if i == 1 and width > room then
      text = words.fitting(words.plain(note.chunk[1]) .. more, room)
      return { { text, note.chunk[2] } }
    elseif width + api.nvim_strwidth(more) > room then
      chunks[i] = { i > 1 and ' ' .. icons.more or text, note.chunk[2] }
      return chunks
    end
    chunks[i] = { text, note.chunk[2] }
    room = room - width
  end
  return chunks
end

local draw ---@type fun(buf: integer)

---@param buf integer
function draw(buf)
  local session = api.nvim_buf_is_loaded(buf) and live.of_buffer(buf)
  if not session then
    return
  end
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  local by_row, seen, unknown = {}, {}, {}
  for _, mention in ipairs(mentions.parse(api.nvim_buf_get_lines(buf, 0, -1, true))) do
    local chunk = not seen[mention.text]
      and note_of(mention, session, unknown, function()
        draw(buf)
      end)
    seen[mention.text] = true
    if chunk then
      local notes = by_row[mention.row] or {}
      by_row[mention.row] = notes
      local is_problem = chunk[2] == 'AgentWarning' -- these come first, because the window may have no room for the rest
      table.insert(notes, is_problem and 1 or #notes + 1, { mention = mention.text, chunk = chunk })
    end
  end
  forget(session.id, seen)
  for row, notes in pairs(by_row) do
    local behind, below = room_at(buf, row)
    local is_behind = behind >= MIN_CELLS
    api.nvim_buf_set_extmark(buf, ns, row, 0, {
      virt_text = is_behind and fitted(notes, behind) or nil,
      virt_lines = not is_behind and { fitted(notes, below) } or nil,
      undo_restore = false,
    })
  end
  check(session, unknown, function()
    draw(buf)
  end)
end

--- Update the notes of the prompt `buf` after the next pause in typing.
---@param buf integer
function M.update(buf)
  local timer = timers[buf] or assert(vim.uv.new_timer())
  timers[buf] = timer
  timer:start(
    PAUSE_MS,
    0,
    vim.schedule_wrap(function()
      timers[buf] = nil
      timer:close()
      draw(buf)
    end)
  )
end

return M
