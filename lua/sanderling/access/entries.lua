--- Entries of the quickfix list from text that names places, such as `path:12:5`, `path#L3-L9` or `path, line 12`.
local M = {}

local api = vim.api
local files = require('sanderling.access.files')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local MAX_LINE_BYTES = 2048 -- searched for places
local MAX_TRIES = 60 -- names on a line that are looked up
local MAX_LINES = 5000 -- of text
local MAX_NAMES = 4000 -- of a text that are looked up on the disk, which freezes the screen: 20 us each
local MAX_FILE_BYTES = 8 * 1024 * 1024 -- of a file whose lines are counted
local MAX_LIST_ROWS = 10
M.MAX = 1000 -- entries

--- A place named on a line of text.
---@class (exact) sanderling.access.entries.Place
---@field path? string real and absolute
---@field buf? integer of a file that was never written
---@field lnum integer
---@field end_lnum? integer
---@field col? integer from 1
---@field from integer its first byte on the line
---@field to integer the byte after it

--- A file or buffer, and its lines as the user sees them.
---@class (exact) sanderling.access.entries.Target
---@field path? string
---@field buf? integer
---@field lines string[]

--- What one text names: targets by name, false where there is none.
---@class (exact) sanderling.access.entries.Search
---@field project string
---@field known table<string, sanderling.access.entries.Target|false>
---@field by_path table<string, sanderling.access.entries.Target>
---@field left integer how many further names are looked up

-- from a name to a file -----------------------------------------------------------------------------------------------

--- Return the loaded buffer of this name or file.
---@param path string absolute
---@return integer?
local function buffer_of(path)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(buf)
    if name ~= '' and api.nvim_buf_is_loaded(buf) and vim.bo[buf].buftype == '' then
      if name == path or vim.uv.fs_realpath(name) == path then
        return buf
      end
    end
  end
end

---@param path string
---@return string[]
local function lines_of_file(path)
  local stat = vim.uv.fs_stat(path)
  if not stat or stat.size > MAX_FILE_BYTES then
    return {}
  end
  local ok, lines = pcall(vim.fn.readfile, path)
  return ok and lines or {}
end

---@param name string
---@param project string
---@return integer? buf of a file that does not exist yet
local function unwritten(name, project)
  if name:find('^%a[%w+.-]*:/') then
    return nil
  end
  local path = vim.startswith(name, '/') and name or vim.fs.joinpath(project, name)
  return buffer_of(vim.fs.normalize(path, { expand_env = false }))
end

---@param search sanderling.access.entries.Search
---@param name string
---@return sanderling.access.entries.Target|false
local function look_up(search, name)
  if search.left == 0 then
    return false
  end
  search.left = search.left - 1
  local path = files.find(name, search.project)
  if path and files.is_read_by_plugin(path) then
    return false
  elseif path then
    local buf = buffer_of(path)
    local lines = not search.by_path[path]
      and (buf and api.nvim_buf_get_lines(buf, 0, -1, false) or lines_of_file(path))
    search.by_path[path] = search.by_path[path] or { path = path, lines = lines }
    return search.by_path[path]
  end
  local buf = unwritten(name, search.project)
  return buf and { buf = buf, lines = api.nvim_buf_get_lines(buf, 0, -1, false) } or false
end

---@param search sanderling.access.entries.Search
---@param name string
---@return sanderling.access.entries.Target?
local function target_of(search, name)
  if name == '' or name:find('%z') then
    return nil
  elseif search.known[name] == nil then
    search.known[name] = look_up(search, name)
    local spellings = { (name:gsub('\\(%p)', '%1')), (name:gsub('^file://', '')) } -- Markdown's escapes
    spellings[3] = name:find('%%%x%x') and vim.uri_decode(spellings[2]) or nil
    for _, other in ipairs(spellings) do
      search.known[name] = search.known[name] or other ~= name and look_up(search, other)
    end
  end
  return search.known[name] or nil
end

-- from a line to names ------------------------------------------------------------------------------------------------

-- How a place names its line: a pattern for the name, the line and the rest, and patterns of that rest.
local SUFFIXES = {
  { '()#L(%d+)()', col = '^C(%d+)', last = '^C?%d*%-L?(%d+)' },
  {
    '():(%d+)()',
    col = '^:(%d+)',
    last = { '^%-L?(%d+)', '^\226\128\147(%d+)', '^:%d+%-(%d+):%d' },
  },
  { '()%((%d+)()', col = '^,(%d+)', last = '^%-(%d+)' },
}

---@param rest string
---@param patterns string|string[]
---@return integer? number
---@return integer length
local function number_in(rest, patterns)
  for _, pattern in ipairs(type(patterns) == 'table' and patterns or { patterns }) do
    local _, to, number = rest:find(pattern)
    if number then
      return tonumber(number), to
    end
  end
  return nil, 0
end

---@param target sanderling.access.entries.Target
---@param lnum integer
---@param end_lnum? integer
---@param col? integer
---@return sanderling.access.entries.Place? place nil: the file has no such line
local function place_at(target, lnum, end_lnum, col)
  local line = target.lines[lnum]
  if not line then
    return nil
  end
  end_lnum = end_lnum and end_lnum > lnum and math.min(end_lnum, #target.lines) or nil
  col = col and col >= 1 and col <= #line + 1 and col or nil
  return {
    path = target.path,
    buf = target.buf,
    lnum = lnum,
    end_lnum = end_lnum,
    col = col,
    from = 0,
    to = 0,
  }
end

--- Return the place that `word` names, and how many of its bytes do so.
---@param search sanderling.access.entries.Search
---@param word string
---@return sanderling.access.entries.Place?
---@return integer length
local function place_of(search, word)
  for _, suffix in ipairs(SUFFIXES) do
    for before, lnum, behind in word:gmatch(suffix[1]) do
      local target = target_of(search, word:sub(1, before - 1))
      if target then
        local rest = word:sub(behind)
        local col, col_length = number_in(rest, suffix.col)
        local last, last_length = number_in(rest, suffix.last)
        local place = place_at(target, assert(tonumber(lnum)), last, col)
        return place, behind - 1 + math.max(col_length, last_length)
      end
    end
  end
  return nil, 0
end

-- Names that something encloses may contain blanks.
local ENCLOSED =
  { '()`([^`]+)`', '()"([^"]+)"', '()%]%(<([^<>]+)>', '()%]%(([^()]+)%)', '()%[([^%[%]]+)%]' }

--- Return the words of a line that may name places, with their columns: enclosed ones, then those between blanks, then
--- those between other separators.
---@param line string
---@return [integer, string][]
local function candidates(line)
  local found = {}
  for _, pattern in ipairs(ENCLOSED) do
    for from, word in line:gmatch(pattern) do
      found[#found + 1] = { (line:find(word, from, true)), word }
    end
  end
  for from, word in line:gmatch('()(%S+)') do
    local opening = #word:match('^["\'`(%[{<*_]*')
    found[#found + 1] = { from + opening, word:sub(opening + 1) }
  end
  for from, word in line:gmatch('()([^%s`"\'()%[%]<>{}*,;|]+)') do
    found[#found + 1] = { from, word }
  end
  return vim.tbl_filter(function(each)
    return each[2]:find('[:#(]L?%d') ~= nil
  end, found)
end

-- `path`, line 12; "path", lines 3 to 9; path (line 12)
local IN_WORDS = {
  '()"([^"]+)"[,:]?%s+%(?[Ll]ines?%s+(%d+)()',
  '()`([^`]+)`[,:]?%s+%(?[Ll]ines?%s+(%d+)()',
  "()([^%s`\"'*%(%)]+)['*,:]*%s+%(?[Ll]ines?%s+(%d+)()",
}

---@param search sanderling.access.entries.Search
---@param line string
---@return sanderling.access.entries.Place[]
local function in_words(search, line)
  local found = {}
  for _, pattern in ipairs(line:find('[Ll]ines?%s+%d') and IN_WORDS or {}) do
    for from, name, lnum, behind in line:gmatch(pattern) do
      local target = target_of(search, name) or target_of(search, (name:gsub(',$', '')))
      local rest = line:sub(behind)
      local last = rest:match('^%s*%-%s*(%d+)')
        or rest:match('^%s*\226\128\147%s*(%d+)')
        or rest:match('^ to (%d+)')
      local place = target and place_at(target, assert(tonumber(lnum)), tonumber(last), nil)
      if place then
        place.from, place.to = from, behind
        found[#found + 1] = place
      end
    end
  end
  return found
end

--- Return the places that a line names, in their order.
---@param search sanderling.access.entries.Search
---@param line string
---@return sanderling.access.entries.Place[]
local function places_in(search, line)
  line = line:sub(1, MAX_LINE_BYTES)
  if not line:find('%d') then
    return {}
  end
  local found = in_words(search, line)
  for i, each in ipairs(candidates(line)) do
    local from, word = unpack(each)
    local is_free = i <= MAX_TRIES
      and not vim.iter(found):any(function(place)
        return from < place.to and from + #word > place.from
      end)
    local place, length = nil, 0
    if is_free then
      place, length = place_of(search, word)
    end
    if place then
      place.from, place.to = from, from + length
      found[#found + 1] = place
    end
  end
  table.sort(found, function(one, other)
    return one.from < other.from
  end)
  return found
end

---@param project string
---@return sanderling.access.entries.Search
local function new_search(project)
  return { project = project, known = {}, by_path = {}, left = MAX_NAMES }
end

-- entries -------------------------------------------------------------------------------------------------------------

--- Return the text of a line without one of its places, and without Markdown.
---@param line string
---@param place sanderling.access.entries.Place
---@return string
local function text_of(line, place)
  local text = line:sub(1, place.from - 1) .. line:sub(place.to)
  text = text:gsub('%[([^%[%]]*)%]%([^()]*%)', '%1'):gsub('^%s*[%-%*%d%.%)#>|]+%s+', '')
  text = text:gsub('[`*]', ''):gsub('%s+', ' '):gsub('[%(%[<"]%s*[%)%]>"]', '')
  text = text:gsub('^[%s:,%-\226\128\147\226\128\148|]+', ''):gsub('[%s|]+$', '')
  return words.plain(words.trimmed(text))
end

---@param search sanderling.access.entries.Search
---@param place sanderling.access.entries.Place
---@param line string
---@return vim.quickfix.entry
local function entry_of(search, place, line)
  local text = text_of(line, place)
  if not text:find('%w') then -- the text only names it: show the line there
    local target = place.path and search.by_path[place.path]
    local lines = target and target.lines
      or api.nvim_buf_get_lines(place.buf, place.lnum - 1, place.lnum, false)
    text = words.plain(words.trimmed(lines[target and place.lnum or 1] or ''))
  end
  return {
    filename = place.path,
    bufnr = place.buf,
    lnum = place.lnum,
    end_lnum = place.end_lnum,
    col = place.col,
    text = text,
  }
end

--- Return the places that lines of text name as entries of the quickfix list. Lines below a line that is only a path,
--- such as ripgrep's, may begin with the number of a line there.
---@param lines string[]
---@param project string root for relative paths
---@param opts? { only_first?: boolean, outside_fences?: boolean } only the first place on each line; none in code
---@return vim.quickfix.entry[]
function M.of(lines, project, opts)
  opts = opts or {}
  local search, seen, items = new_search(project), {}, {} ---@type _, table<string, true>, vim.quickfix.entry[]
  local fence, heading ---@type string?, sanderling.access.entries.Target?
  local function add(place, line)
    local key = ('%s:%d'):format(place.path or place.buf, place.lnum)
    local precise = ('%s:%d'):format(key, place.col or 0)
    if #items < M.MAX and not seen[precise] and not (seen[key] and not place.col) then
      seen[precise], seen[key] = true, true
      items[#items + 1] = entry_of(search, place, line)
    end
  end
  for i, line in ipairs(lines) do
    local before = fence
    fence = words.fence_behind(line, fence)
    if i > MAX_LINES or #items >= M.MAX then
      break
    elseif not (opts.outside_fences and (fence or before)) then
      local places = places_in(search, line)
      for _, place in ipairs(opts.only_first and { places[1] } or places) do
        add(place, line)
      end
      local lnum, behind = line:match('^%s*(%d+):()')
      local under = heading and lnum and place_at(heading, assert(tonumber(lnum)))
      if under and #places == 0 then
        under.from, under.to = 1, behind
        add(under, line)
      elseif not line:match('^%s*%d+[:%-]') then
        heading = line:find('%S') and #line < 512 and target_of(search, line) or nil
      end
    end
  end
  return items
end

--- Make `items` the quickfix list and show it.
---@param title string
---@param items vim.quickfix.entry[]
---@param is_open? boolean false: only set it
function M.show(title, items, is_open)
  scratch.quietly(function() -- this creates unloaded buffers for the files
    vim.fn.setqflist({}, ' ', { title = title, items = items })
  end)
  if is_open ~= false then
    vim.cmd(('botright copen %d'):format(math.min(#items, MAX_LIST_ROWS)))
  end
end

return M
