--- Mentions in a prompt: `@path`, `@path:10-40`, `@directory/`, `@buffer`, `@selection`, `@diagnostics`, `@quickfix`, `@diff`, `@staged`,
--- `@clipboard`, `@symbol:name`, `@https://page`; `@session:id` is the host's.
--- They are words like all others until the prompt is sent: then what they stand for goes along, as it is at that moment.
---
--- A word that names nothing stays a word: people write `@property`, and addresses.
local M = {}

local lazy = require('sanderling.ui.lazy')

local context = require('sanderling.prompt.context')
local files = require('sanderling.ui.files')
local find = lazy('sanderling.editing.find')
local images = lazy('sanderling.prompt.images')
local live = require('sanderling.session.live')
local sources = require('sanderling.prompt.sources')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

M.WORDS = {
  { 'buffer', 'the file that you were in last' },
  { 'selection', 'what you selected last, there' },
  { 'diagnostics', 'what is reported in that file' },
  { 'quickfix', 'the quickfix list' },
  { 'diff', 'changes that git has not staged' },
  { 'staged', 'changes that git has staged' },
  { 'clipboard', 'the image on the clipboard' },
  { 'symbol:', 'a name that a language server knows' },
  { 'session:', 'the last answer of another session' },
}

local MAX_MENTIONS, MAX_WORD_BYTES = 500, 4096 -- in a prompt: what is pasted can have any number of `@`
local MAX_BYTES = 256 * 1024 -- of one mention: more than a model reads with care
local MAX_READ = 16 * 1024 * 1024
local TOO_LARGE = 'too large: %.1f MB'
local MAX_LISTED = 300 -- files of a directory
local AFTER = '[%.,;:!%?%)%]}\'"]+$' -- a sentence goes on with it
local IMAGES = { png = true, jpg = true, jpeg = true, gif = true, webp = true }

---@class (exact) sanderling.prompt.mentions.Mention
---@field text string as it stands there, without what a sentence goes on with
---@field name string what it names
---@field first? integer line
---@field last? integer
---@field row integer from 0
---@field col integer

-- what is written -----------------------------------------------------------------------------------------------------

---@param word string behind the `@`
---@return string name
---@return integer? first
---@return integer? last
local function parts_of(word)
  local name, first, last = word:match('^(.+):(%d+)%-(%d+)$')
  if not name then
    name, first = word:match('^(.+):(%d+)$')
  end
  name = (name or word):gsub('\\ ', ' ')
  first, last = tonumber(first), tonumber(last)
  return name, first, last or first
end

--- The mentions in lines, in their order.
---@param lines string[]
---@return sanderling.prompt.mentions.Mention[]
function M.parse(lines)
  local found = {}
  for row, line in ipairs(lines) do
    local at, joined = 1, line:gsub('\\ ', '\0\0')
    while at and #found < MAX_MENTIONS do
      local from = line:find('@', at, true)
      at = from and from + 1
      local is_word = from and not line:sub(from - 1, from - 1):find('[%w_@]')
      local word = is_word and joined:match('^%S+', from + 1)
      if word and #word <= MAX_WORD_BYTES then
        word = word:gsub('%z%z', '\\ '):gsub(AFTER, '')
      else
        at, word = word and from + #word + 1 or at, nil
      end
      if word and word ~= '' then
        local name, first, last = parts_of(word)
        found[#found + 1] = {
          text = '@' .. word,
          name = name,
          first = first,
          last = last,
          row = row - 1,
          col = from - 1,
        }
        at = from + #word + 1
      end
    end
  end
  return found
end

-- what they stand for -------------------------------------------------------------------------------------------------

---@param path string
---@param project string
---@return string absolute
local function absolute(path, project)
  path = path:sub(1, 1) == '~' and vim.fs.normalize(path, { expand_env = false }) or path
  return path:sub(1, 1) == '/' and path or vim.fs.joinpath(project, path)
end

--- A directory, as the list of its files.
---@param mention sanderling.prompt.mentions.Mention
---@param path string absolute
---@return sanderling.prompt.sources.Found
local function of_directory(mention, path)
  local lines = {}
  for name, kind in
    vim.fs.dir(path, {
      depth = 3,
      skip = function(name)
        return not vim.startswith(vim.fs.basename(name), '.')
      end,
    })
  do
    if #lines == MAX_LISTED then
      lines[#lines + 1] = '... and more'
      break
    end
    lines[#lines + 1] = name:gsub('%c', '?') .. (kind == 'directory' and '/' or '')
  end
  table.sort(lines)
  return { path = mention.name, lines = lines, first = 1, origin = 'the names in this directory' }
end

---@param real string
---@param stat uv.fs_stat.result
---@return string?
local function read_all(real, stat)
  local file = stat.size <= MAX_READ and io.open(real, 'rb')
  local data = file and file:read('*a')
  if file then
    file:close()
  end
  return data or nil
end

---@param real string
---@param stat uv.fs_stat.result
---@return string[]? lines
local function read(real, stat)
  local text = stat.size <= 4 * MAX_BYTES and read_all(real, stat)
  return text and vim.split((text:gsub('\n$', '')), '\r?\n') or nil
end

---@param mention sanderling.prompt.mentions.Mention
---@param project string
---@param real string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_file(mention, project, real)
  local stat = assert(vim.uv.fs_stat(real))
  local path = vim.fs.relpath(project, absolute(mention.name, project)) or mention.name
  if IMAGES[(real:match('%.(%w+)$') or ''):lower()] then
    local data = read_all(real, stat)
    if not data then
      return nil, TOO_LARGE:format(stat.size / 1024 / 1024)
    end
    return images.found(path, data, 'an image')
  end
  local buf = find.buffer_of(real, stat.dev, stat.ino, '')
  local first, last = mention.first or 1, mention.last or math.huge
  local origin = buf and 'as it stands in the editor' or 'as it stands on the disk'
  local lines
  if buf then
    lines = vim.split((find.describe(buf, path).text:gsub('\n$', '')), '\n', { plain = true })
  else
    lines = read(real, stat)
  end
  if not lines then
    return nil, TOO_LARGE:format(stat.size / 1024 / 1024)
  elseif first < 1 or first > #lines or last < first then
    return nil, ('has %s'):format(words.counted(#lines, 'line'))
  end
  return {
    path = path,
    lines = vim.list_slice(lines, first, math.min(last, #lines)),
    first = first,
    origin = origin,
    filetype = buf and vim.bo[buf].filetype or vim.filetype.match({ filename = real }) or '',
  }
end

--- Does `mention` name a tool server's resource? These are the host's.
---@param mention sanderling.prompt.mentions.Mention
---@param session_id string
---@return boolean
local function is_resource(mention, session_id)
  return vim.iter(live.state_of(session_id).tool_servers):any(function(server)
    return vim.startswith(mention.text, ('@%s:'):format(server.name))
  end)
end

--- Does it look like a file, so that it is worth a word that there is none?
---@param mention sanderling.prompt.mentions.Mention
---@return boolean
local function looks_like_path(mention)
  return mention.first ~= nil
    or mention.name:find('[^/]/') ~= nil
    or mention.name:find('%w%.%l') ~= nil
end

--- The words that stand beside a mention as long as what it stands for is looked up; nil: that takes no time.
---@param mention sanderling.prompt.mentions.Mention
---@return string?
function M.is_looked_up_late(mention)
  if mention.name == 'diff' or mention.name == 'staged' then
    return 'git is asked'
  elseif mention.name == 'clipboard' then
    return 'the clipboard is read'
  elseif mention.name:find('^symbol:.') then
    return 'the language servers are asked'
  elseif mention.name:find('^session:[%w_-]+$') then
    return stored.title_of(mention.name:sub(#'session:' + 1)) or 'its log is read'
  end
end

--- Does only the host know what a mention stands for?
---@param mention sanderling.prompt.mentions.Mention
---@return boolean
function M.is_hosts(mention)
  return vim.startswith(mention.name, 'session:')
end

--- A page of the web, which the model fetches by its own tool: that asks, and goes through the sandbox's network.
---@param mention sanderling.prompt.mentions.Mention
---@param session_id string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_page(mention, session_id)
  local sandbox = live.state_of(session_id).sandbox
  local is_local = mention.text:find('^@https?://localhost')
    or mention.text:find('^@https?://127%.')
  if sandbox.network == 'off' and sandbox.level ~= 'off' and not is_local then
    return nil, 'the network is off: :AgentNet opens it'
  end
  local line = '(A page: fetch it with your tool web_fetch, and answer with what it holds.)'
  return { path = mention.text, lines = { line }, first = 1, origin = 'a page of the web' }
end

--- Look up what a mention stands for.
---@param mention sanderling.prompt.mentions.Mention
---@param session { id: string, project: string }
---@return sanderling.prompt.sources.Found? found
---@return string? problem why there is nothing; neither: it is no mention
function M.look_up(mention, session)
  local by_word = sources.BY_WORD[mention.name]
  local is_page = mention.name:find('^https?://[%w%[]') ~= nil
  if is_page and not is_resource(mention, session.id) then
    return of_page(mention, session.id)
  elseif mention.name:find('^%a+://') or is_resource(mention, session.id) then
    return nil, nil
  elseif mention.name:find('^symbol:.') then
    return sources.symbol(mention.name:sub(#'symbol:' + 1), session.project)
  elseif M.is_hosts(mention) then
    return nil, nil
  elseif by_word then
    return by_word(session.project)
  end
  local path = absolute(mention.name, session.project)
  local stat = vim.uv.fs_stat(path)
  if stat and stat.type == 'directory' and mention.name:sub(-1) == '/' then
    return of_directory(mention, path)
  end
  local real = stat and files.find(mention.name, session.project)
  if real then
    return of_file(mention, session.project, real)
  end
  return nil, looks_like_path(mention) and 'not found' or nil
end

--- The selection that goes along for what was found.
---@param found sanderling.prompt.sources.Found
---@return sanderling.Selection? selection
---@return string? problem
function M.selection(found)
  local text, err = context.text(found.lines, found.path, found.first)
  if not text then
    return nil, err and 'is no text' or nil
  elseif #text > MAX_BYTES and not found.media_type then
    local limit = MAX_BYTES / 1024
    return nil, ('too large: %d KB, at most %d; name some of its lines'):format(#text / 1024, limit)
  end
  return {
    path = found.path,
    first_line = found.first,
    last_line = found.first + #found.lines - 1,
    filetype = found.filetype or '',
    text = text,
    origin = found.origin,
    media_type = found.media_type,
  }
end

--- The lines that go along for a mention.
---@param mention sanderling.prompt.mentions.Mention
---@param session { id: string, project: string }
---@return sanderling.Selection? selection
---@return string? problem
function M.resolve(mention, session)
  local found, problem = M.look_up(mention, session)
  if not found then
    return nil, problem
  end
  return M.selection(found)
end

--- All that goes along with a prompt for its mentions, each once.
---@param lines string[]
---@param session { id: string, project: string }
---@return sanderling.Selection[]
function M.selections(lines, session)
  local found, seen = {}, {}
  for _, mention in ipairs(M.parse(lines)) do
    local selection = not seen[mention.text] and M.resolve(mention, session)
    seen[mention.text] = true
    found[#found + 1] = selection or nil
  end
  return found
end

return M
