--- Mentions in a prompt: `@path`, `@path:10-40`, `@directory/`, `@buffer`, `@selection`, `@diagnostics`, `@quickfix`,
--- `@diff`, `@staged`, `@clipboard`, `@symbol:name`, `@https://page`, `@session:id`, which the host resolves, and those of
--- plugins (extend/mention.lua).
---
--- They are resolved when the prompt is sent, and what they refer to at that moment is attached. A word that matches
--- nothing is sent as plain text, because people write `@property` and addresses.
local M = {}

local lazy = require('sanderling.ui.lazy')

local context = require('sanderling.prompt.context')
local files = require('sanderling.access.files')
local find = lazy('sanderling.editing.find')
local images = lazy('sanderling.prompt.images')
local live = require('sanderling.session.live')
local outline = lazy('sanderling.prompt.outline')
local sources = require('sanderling.prompt.sources')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

M.WORDS = {
  { 'buffer', 'the last file you were in' },
  { 'selection', 'your last selection in it' },
  { 'diagnostics', 'its diagnostics' },
  { 'quickfix', 'the quickfix list' },
  { 'diff', 'unstaged changes' },
  { 'staged', 'staged changes' },
  { 'clipboard', 'the image on the clipboard' },
  { 'symbol:', 'a function or class, by its name' },
  { 'session:', 'the last answer of another session' },
}

local MAX_MENTIONS, MAX_WORD_BYTES = 500, 4096 -- per prompt: pasted text may contain any number of `@`
local MAX_BYTES = 256 * 1024 -- per mention: more than a model reads with care
local MAX_READ = 16 * 1024 * 1024
local TOO_LARGE = 'too large: %.1f MB'
local MAX_LISTED = 300 -- files of a directory
local MAX_WHOLE_LINES, MAX_WHOLE_BYTES = 2000, 30 * 1024 -- of a file that is attached whole
local HEAD_LINES, HEAD_BYTES, MAX_OUTLINED = 200, 8 * 1024, 200 -- of a larger one
local AFTER = '[%.,;:!%?%)%]}\'"]+$' -- punctuation of the sentence around a mention
local IMAGES = { png = true, jpg = true, jpeg = true, gif = true, webp = true }

---@class (exact) sanderling.prompt.mentions.Mention
---@field text string as written, without following punctuation
---@field name string what it refers to
---@field first? integer line
---@field last? integer
---@field row integer from 0
---@field col integer

-- parsing -------------------------------------------------------------------------------------------------------------

---@param word string after the `@`
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

--- Return the mentions in `lines`, in order.
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

-- resolving -----------------------------------------------------------------------------------------------------------

---@param path string
---@param project string
---@return string absolute
local function absolute(path, project)
  path = path:sub(1, 1) == '~' and vim.fs.normalize(path, { expand_env = false }) or path
  return path:sub(1, 1) == '/' and path or vim.fs.joinpath(project, path)
end

--- Return a directory as a list of its files.
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
  return { path = mention.name, lines = lines, first = 1, origin = 'directory listing' }
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
  local suffix = (real:match('%.(%w+)$') or ''):lower()
  if suffix == 'pdf' then
    return nil, nil -- the host attaches its pages
  elseif IMAGES[suffix] then
    local data = read_all(real, stat)
    if not data then
      return nil, TOO_LARGE:format(stat.size / 1024 / 1024)
    end
    return images.found(path, data, 'an image')
  end
  local buf = find.buffer_of(real, stat.dev, stat.ino, '')
  local first, last = mention.first or 1, mention.last or math.huge
  local origin = buf and 'current editor text' or 'as saved on disk'
  local lines
  if buf then
    lines = vim.split((find.describe(buf, path).text:gsub('\n$', '')), '\n', { plain = true })
  else
    lines = read(real, stat)
  end
  if not lines and suffix == 'ipynb' then
    return nil, nil -- the host attaches its cells
  elseif not lines then
    return nil, TOO_LARGE:format(stat.size / 1024 / 1024)
  elseif first < 1 or first > #lines or last < first then
    return nil, ('file has %s'):format(words.counted(#lines, 'line'))
  end
  return {
    path = path,
    lines = vim.list_slice(lines, first, math.min(last, #lines)),
    first = first,
    origin = origin,
    filetype = buf and vim.bo[buf].filetype or vim.filetype.match({ filename = real }) or '',
  }
end

--- Return whether `mention` names an MCP server's resource, which the host resolves.
---@param mention sanderling.prompt.mentions.Mention
---@param session_id string
---@return boolean
local function is_resource(mention, session_id)
  return vim.iter(live.state_of(session_id).tool_servers):any(function(server)
    return vim.startswith(mention.text, ('@%s:'):format(server.name))
  end)
end

--- Return whether a mention looks like a file, so that a missing file is worth a note.
---@param mention sanderling.prompt.mentions.Mention
---@return boolean
local function looks_like_path(mention)
  return mention.first ~= nil
    or mention.name:find('[^/]/') ~= nil
    or mention.name:find('%w%.%l') ~= nil
end

--- Return the note shown next to a mention while it is resolved, nil if that takes no time.
---@param mention sanderling.prompt.mentions.Mention
---@return string?
function M.is_looked_up_late(mention)
  if mention.name == 'diff' or mention.name == 'staged' then
    return 'asking git'
  elseif mention.name == 'clipboard' then
    return 'reading the clipboard'
  elseif mention.name:find('^symbol:.') then
    return 'asking language servers'
  elseif mention.name:find('^session:[%w_-]+$') then
    return stored.title_of(mention.name:sub(#'session:' + 1)) or 'reading its log'
  end
end

---@param mention sanderling.prompt.mentions.Mention
---@return boolean
function M.is_hosts(mention)
  return vim.startswith(mention.name, 'session:')
end

--- Resolve a web page: the model fetches it with its own tool, which asks for permission and uses the sandbox's
--- network.
---@param mention sanderling.prompt.mentions.Mention
---@param session_id string
---@return sanderling.prompt.sources.Found?
---@return string? problem
local function of_page(mention, session_id)
  local sandbox = live.state_of(session_id).sandbox
  local is_local = mention.text:find('^@https?://localhost')
    or mention.text:find('^@https?://127%.')
  if sandbox.network == 'off' and sandbox.level ~= 'off' and not is_local then
    return nil, 'the network is off (:AgentNet on opens it)'
  end
  local line = '(A web page. Fetch it with your web_fetch tool and use its content.)'
  return { path = mention.text, lines = { line }, first = 1, origin = 'a web page' }
end

--- Return the plugin's mention that `mention` is. An MCP server of the same name has precedence, as in the host.
---@param mention sanderling.prompt.mentions.Mention
---@param session_id string
---@return sanderling.extend.mention.Mention?
---@return string? name
function M.plugins(mention, session_id)
  local plugins = package.loaded['sanderling.extend.mention']
  if plugins and not is_resource(mention, session_id) then
    return plugins.find(mention.text)
  end
end

local of_plugin ---@type fun(plugins: sanderling.extend.mention.Mention, name: string, mention: sanderling.prompt.mentions.Mention, session: { id: string, project: string }): sanderling.prompt.sources.Found

--- Resolve a mention.
---@param mention sanderling.prompt.mentions.Mention
---@param session { id: string, project: string }
---@return sanderling.prompt.sources.Found? found
---@return string? problem why it cannot be resolved; nil for both: it is not a mention
function M.look_up(mention, session)
  local plugins, name = M.plugins(mention, session.id)
  if plugins and name ~= '' then
    return of_plugin(plugins, assert(name), mention, session)
  end
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

--- Return the beginning of a large file that is mentioned without a range, and an outline of the rest.
---@param found sanderling.prompt.sources.Found
---@return sanderling.prompt.sources.Found head
---@return sanderling.prompt.sources.Found? rest nil: it is attached whole
local function shortened(found)
  local lines, bytes, kept = found.lines, 0, 0
  for _, line in ipairs(lines) do
    bytes = bytes + #line + 1
    kept = kept < HEAD_LINES and bytes <= HEAD_BYTES and kept + 1 or kept
  end
  if #lines <= MAX_WHOLE_LINES and bytes <= MAX_WHOLE_BYTES or kept == 0 then
    return found, nil
  end
  local listed = outline.of(lines, found.filetype or '', MAX_OUTLINED, function(row)
    return row >= kept
  end)
  local only = ('%s; only lines 1-%d of %d, read the rest as needed'):format(
    found.origin,
    kept,
    #lines
  )
  local head =
    vim.tbl_extend('force', found, { lines = vim.list_slice(lines, 1, kept), origin = only })
  local rest = {
    path = '@outline:' .. found.path,
    lines = listed,
    first = 1,
    origin = 'line numbers of definitions in the rest',
  }
  return head, #listed > 0 and rest or nil
end

---@param mention sanderling.prompt.mentions.Mention
---@param found sanderling.prompt.sources.Found
---@return boolean
local function is_whole_file(mention, found)
  local is_file = not found.media_type and not vim.startswith(found.path, '@')
  local is_named = mention.name == 'buffer' or sources.BY_WORD[mention.name] == nil
  return is_file
    and is_named
    and not found.is_excerpt
    and not mention.first
    and not mention.name:find('^symbol:')
end

--- Return the selection to attach for a resolved mention.
---@param found sanderling.prompt.sources.Found
---@return sanderling.Selection? selection
---@return string? problem
function M.selection(found)
  local text, err = context.text(found.lines, found.path, found.first)
  if not text then
    return nil, err and 'binary file' or nil
  elseif #text > MAX_BYTES and not found.media_type then
    local limit = MAX_BYTES / 1024
    return nil, ('too large: %d KB, at most %d; name a range of lines'):format(#text / 1024, limit)
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

--- Resolve a plugin's mention. If that fails, the user and the model are informed, and the prompt is sent.
---@param plugins sanderling.extend.mention.Mention
---@param name string
---@param mention sanderling.prompt.mentions.Mention
---@param session { id: string, project: string }
---@return sanderling.prompt.sources.Found
function of_plugin(plugins, name, mention, session)
  local answer, problem = require('sanderling.extend.mention').resolve(plugins, name, session.id)
  local found ---@type sanderling.prompt.sources.Found?
  if answer and answer.text then
    found = {
      path = (answer.path or '') ~= '' and answer.path or mention.text,
      lines = vim.split((answer.text:gsub('\r\n', '\n'):gsub('\n$', '')), '\n', { plain = true }),
      first = 1,
      origin = plugins.desc,
      filetype = answer.filetype,
      is_excerpt = true,
    }
  elseif answer then
    local file =
      { text = '@' .. answer.path, name = answer.path, row = mention.row, col = mention.col }
    local real = files.find(answer.path, session.project)
    problem = ('%s was not found'):format(answer.path)
    if real then
      found, problem = of_file(file, session.project, real)
      problem = problem or 'only text and images can be attached'
    end
  end
  if found then
    local selection, err = M.selection(found)
    found, problem = selection and found, err
  end
  if found then
    return found
  end
  local registry = require('sanderling.extend.registry')
  registry.report(plugins, mention.text, problem)
  local line = '(Not attached: the plugin that resolves it failed: %s)'
  line = line:format(registry.first_line(problem))
  return {
    path = mention.text,
    lines = { line },
    first = 1,
    origin = plugins.desc,
    is_excerpt = true,
  }
end

--- Resolve a mention to the selection to attach.
---@param mention sanderling.prompt.mentions.Mention
---@param session { id: string, project: string }
---@return sanderling.Selection? selection
---@return string? problem
---@return sanderling.Selection? outline of the rest of a large file
function M.resolve(mention, session)
  local found, problem = M.look_up(mention, session)
  if not found then
    return nil, problem
  end
  local head, rest = found, nil
  if is_whole_file(mention, found) then
    head, rest = shortened(found)
  end
  local selection, err = M.selection(head)
  if err and vim.endswith(found.path, '.ipynb') then
    return nil, nil -- too large: the host attaches its cells
  end
  return selection, err, rest and M.selection(rest) or nil
end

--- Return the selections of all mentions of a prompt, without duplicates.
---@param lines string[]
---@param session { id: string, project: string }
---@return sanderling.Selection[]
function M.selections(lines, session)
  local found, seen = {}, {}
  for _, mention in ipairs(M.parse(lines)) do
    if not seen[mention.text] then
      local selection, _, rest = M.resolve(mention, session)
      found[#found + 1] = selection
      found[#found + 1] = selection and rest
    end
    seen[mention.text] = true
  end
  return found
end

return M
