--- Entries of the quickfix list from text that names places, such as `path:12:5`, `path#L3-L9` or `path, line 12`: answers
--- of a model, and what compilers, tests, searches and diffs print.
local M = {}

local api = vim.api
local files = require('sanderling.access.files')
local words = require('sanderling.ui.words')

local MAX_LINE_BYTES = 2048 -- searched for places
local MAX_TRIES = 60 -- names on a line that are looked up
local MAX_LINES = 5000 -- of text
local MAX_NAMES = 4000 -- of a text that are looked up on the disk, which freezes the screen: 20 us each
local MAX_BLANK_NAMES = 500 -- of these, names with blanks, whose beginning is not known
local MAX_BLANKS = 6 -- in such a name
local MAX_FILE_BYTES = 8 * 1024 * 1024 -- of a file whose lines are counted
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

--- Which places of a text to list.
---@class (exact) sanderling.access.entries.Opts
---@field directory? string that relative paths may begin at, too
---@field only_first? boolean place on each line
---@field outside_fences? boolean none in code

--- What one text names: targets by name, false where there is none.
---@class (exact) sanderling.access.entries.Search
---@field roots string[] directories that relative names begin at, the nearest first
---@field known table<string, sanderling.access.entries.Target|false>
---@field by_path table<string, sanderling.access.entries.Target>
---@field left integer how many further names are looked up
---@field left_with_blanks integer

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
---@param root string
---@return integer? buf of a file that does not exist yet
local function unwritten(name, root)
  if name:find('^%a[%w+.-]*:/') then
    return nil
  end
  local path = vim.startswith(name, '/') and name or vim.fs.joinpath(root, name)
  return buffer_of(vim.fs.normalize(path, { expand_env = false }))
end

---@param search sanderling.access.entries.Search
---@param name string
---@param root string
---@return sanderling.access.entries.Target|false
local function look_up_in(search, name, root)
  local path = files.find(name, root)
  if path and files.is_read_by_plugin(path) then
    return false
  elseif path then
    local buf = buffer_of(path)
    local lines = not search.by_path[path]
      and (buf and api.nvim_buf_get_lines(buf, 0, -1, false) or lines_of_file(path))
    search.by_path[path] = search.by_path[path] or { path = path, lines = lines }
    return search.by_path[path]
  end
  local buf = unwritten(name, root)
  return buf and { buf = buf, lines = api.nvim_buf_get_lines(buf, 0, -1, false) } or false
end

---@param search sanderling.access.entries.Search
---@param name string
---@return sanderling.access.entries.Target|false
local function look_up(search, name)
  local found = false ---@type sanderling.access.entries.Target|false
  for _, root in ipairs(search.roots) do
    if not found and search.left > 0 then
      search.left = search.left - 1
      found = look_up_in(search, name, root)
    end
  end
  return found
end

--- Return the names that a name may stand for.
---@param name string
---@return string[]
local function spellings(name)
  local bare = name:gsub('^file://', ''):gsub('^@', '') -- an address; a mention
  local all = { name, bare, (name:gsub('\\(%p)', '%1')) } -- with Markdown's escapes
  if name:find('%%%x%x') then
    all[#all + 1] = vim.uri_decode(bare)
  end
  if name:find('\\', 1, true) then
    all[#all + 1] = (name:gsub('\\+', '/')) -- Windows
  end
  if name:find('^/[^/]') then
    all[#all + 1] = name:sub(2) -- a link from the root of the project
  end
  return all
end

---@param search sanderling.access.entries.Search
---@param name string
---@return sanderling.access.entries.Target?
local function target_of(search, name)
  if name == '' or name:find('%z') then
    return nil
  elseif search.known[name] == nil then
    search.known[name] = false
    for i, each in ipairs(spellings(name)) do
      local is_new = i == 1 or each ~= name
      search.known[name] = search.known[name] or is_new and look_up(search, each)
    end
  end
  return search.known[name] or nil
end

-- from a line to names ------------------------------------------------------------------------------------------------

-- How a place names its line: a pattern for the name, the line and the rest, and patterns of that rest.
local SUFFIXES = {
  { '()#L?(%d+)()', col = '^C(%d+)', last = '^C?%d*%-L?(%d+)C?%d*' },
  {
    '():L?(%d+)()',
    col = '^:(%d+)',
    last = { '^%-L?(%d+)', '^\226\128\147L?(%d+)', '^%.%.(%d+)', '^:%d+%-(%d+):%d' },
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

-- Names that something encloses may contain blanks; the line may follow a quotation.
local QUOTED = { '()`([^`]+)`()', '()"([^"]+)"()', "()'([^']+)'()" }
local ENCLOSED = { '()%]%(<([^<>]+)>', '()%]%(([^()]+)%)', '()%[([^%[%]]+)%]' }

--- A word of a line that may name a place.
---@class (exact) sanderling.access.entries.Candidate
---@field from integer its first byte
---@field word string
---@field quote? integer byte of a quote between the name and the line
---@field is_between_blanks? boolean

--- Return the words of a line that may name places: enclosed ones, then those between blanks, then those between other
--- separators.
---@param line string
---@return sanderling.access.entries.Candidate[]
local function candidates(line)
  local found = {} ---@type sanderling.access.entries.Candidate[]
  for _, pattern in ipairs(QUOTED) do
    for from, word, behind in line:gmatch(pattern) do
      local suffix = line:match('^[:#(]L?%d%S*', behind) or ''
      local quote = suffix ~= '' and behind - 1 or nil
      found[#found + 1] = { from = from + 1, word = word .. suffix, quote = quote }
    end
  end
  for _, pattern in ipairs(ENCLOSED) do
    for from, word in line:gmatch(pattern) do
      found[#found + 1] = { from = (line:find(word, from, true)), word = word }
    end
  end
  for from, word in line:gmatch('()(%S+)') do
    local opening = #word:match('^["\'`(%[{<*_]*')
    found[#found + 1] =
      { from = from + opening, word = word:sub(opening + 1), is_between_blanks = true }
  end
  for from, word in line:gmatch('()([^%s`"\'()%[%]<>{}*,;|]+)') do
    found[#found + 1] = { from = from, word = word }
  end
  return vim.tbl_filter(function(each)
    return each.word:find('[:#(]L?%d') ~= nil
  end, found)
end

--- Return the place whose name ends in `word` and begins with words before it.
---@param search sanderling.access.entries.Search
---@param line string
---@param from integer byte of `word`
---@param word string
---@param least integer the byte where that name may begin at the earliest
---@return sanderling.access.entries.Place?
local function with_blanks(search, line, from, word, least)
  local starts = {}
  for at, opening in line:sub(1, from - 1):gmatch('()["\'`(%[{<*_]*()%S') do
    if at == 1 or line:find('^%s', at - 1) then
      table.insert(starts, 1, opening)
    end
  end
  for i, start in ipairs(starts) do
    if i > MAX_BLANKS or start < least or search.left_with_blanks == 0 then
      return nil
    end
    local text = line:sub(start, from + #word - 1)
    if text:find('[./\\]') then
      search.left_with_blanks = search.left_with_blanks - 1
      local place, length = place_of(search, text)
      if place then
        place.from, place.to = start, start + length
        return place
      end
    end
  end
end

-- `path`, line 12; "path", lines 3 to 9; path (line 12); path at line 12; path:line 12
local IN_WORDS = {
  '()File "([^"]+)", line (%d+)()',
  '()"([^"]+)"[,:]?%s+%(?[Ll]ines?%s+(%d+)()',
  '()`([^`]+)`[,:]?%s+%(?[Ll]ines?%s+(%d+)()',
  '()([^%s`"\'*%(%)]+)[`"\'*,:]*%s+%(?[Ll]ines?%s+(%d+)()',
  '()([^%s`"\'*%(%)]+)[`"\'*,:]*%s+[ao][tn]%s+[Ll]ines?%s+(%d+)()',
  '()([^%s`"\'*%(%)]+):[Ll]ine%s+(%d+)()',
  '()([^%s`"\'*%(%)]+)[`"\'*]*%s+L(%d+)()',
}
-- line 12 of `path`; lines 3-9 in path
local BACKWARDS = {
  '()[Ll]ines?%s+(%d+)([^%a`]*)%s+[oi][fn]%s+`([^`]+)()',
  '()[Ll]ines?%s+(%d+)([^%a`]*)%s+[oi][fn]%s+[`"\'*]*([^%s`"\'*%(%),]+)()',
}
local LAST = { '^%s*%-%s*L?(%d+)', '^%s*\226\128\147%s*L?(%d+)', '^ to (%d+)' }

--- Return the places that a line names in words.
---@param search sanderling.access.entries.Search
---@param line string
---@return sanderling.access.entries.Place[]
local function in_words(search, line)
  local found = {}
  local function add(from, name, lnum, rest, behind)
    local target = target_of(search, name) or target_of(search, (name:gsub('[,:;.]+$', '')))
    local place = target and place_at(target, assert(tonumber(lnum)), (number_in(rest, LAST)))
    if place then
      place.from, place.to = from, behind
      found[#found + 1] = place
    end
  end
  for _, pattern in ipairs(line:find('[Ll][ines]*%s*%d') and IN_WORDS or {}) do
    for from, name, lnum, behind in line:gmatch(pattern) do
      add(from, name, lnum, line:sub(behind), behind)
    end
  end
  for _, pattern in ipairs(line:find('[Ll]ines?%s+%d') and BACKWARDS or {}) do
    for from, lnum, rest, name, behind in line:gmatch(pattern) do
      add(from, name, lnum, rest, behind)
    end
  end
  return found
end

--- Return the places that a line names, in their order.
---@param search sanderling.access.entries.Search
---@param line string
---@return sanderling.access.entries.Place[]
local function places_in(search, line)
  if not line:find('%d') then
    return {}
  end
  local found = in_words(search, line)
  for i, each in ipairs(candidates(line)) do
    local from, word, least = each.from, each.word, 1
    local is_free = i <= MAX_TRIES
    for _, place in ipairs(found) do
      is_free = is_free and (from >= place.to or from + #word <= place.from)
      least = place.to <= from and math.max(least, place.to) or least
    end
    local place, length = nil, 0
    if is_free then
      place, length = place_of(search, word)
    end
    if place then
      place.from, place.to = from, from + length
      place.to = place.to + ((each.quote and place.to > each.quote) and 1 or 0)
    elseif is_free and each.is_between_blanks then
      place = with_blanks(search, line, from, word, least)
    end
    found[#found + 1] = place
  end
  table.sort(found, function(one, other)
    return one.from < other.from
  end)
  return found
end

---@param roots string[] directories, the nearest first
---@return sanderling.access.entries.Search
local function new_search(roots)
  return {
    roots = roots,
    known = {},
    by_path = {},
    left = MAX_NAMES,
    left_with_blanks = MAX_BLANK_NAMES,
  }
end

-- entries -------------------------------------------------------------------------------------------------------------

--- Return the text of a line without Markdown, and without one of its places unless that is in the middle of a sentence.
---@param line string
---@param place sanderling.access.entries.Place
---@return string
local function text_of(line, place)
  local before, behind = line:sub(1, place.from - 1), line:sub(place.to)
  local is_within = before:find('%l[,;]?%s+["\'`*]*$') and behind:find('^["\'`*]*[^:]')
  local text = is_within and line or before .. behind
  text = text:gsub('%[([^%[%]]*)%]%([^()]*%)', '%1'):gsub('^%s*[%-%*%d%.%)#>|]+%s+', '')
  text = text:gsub('[`*]', ''):gsub('%s+', ' '):gsub('[%(%[<"]%s*[%)%]>"]', '')
  text = text:gsub('^[%s:,%)%-\226\128\147\226\128\148|]+', ''):gsub('[%s|]+$', '')
  return words.plain(words.trimmed((text:gsub(':%s+:', ':'))))
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

--- Return the beginning of a line without the escape sequences that color it and make links of it.
---@param line string
---@return string
local function cleaned(line)
  line = line:sub(1, MAX_LINE_BYTES)
  if line:find('\27', 1, true) then
    line = line:gsub('\27%][^\7\27]*\7', ''):gsub('\27%][^\27]*\27\\', '')
    line = line:gsub('\27%[[%d;:<=>?]*[%a@]', '')
  end
  return (line:gsub('\r+$', ''))
end

--- Note the directory that make enters or leaves.
---@param search sanderling.access.entries.Search
---@param line string
---@param roots string[] outside of it
local function note_directory(search, line, roots)
  local what, name = line:match('(%a+)ing directory [`\'"]([^`\'"]+)')
  if what == 'Enter' then
    local path = name:find('^/') and name or vim.fs.joinpath(roots[#roots], name)
    search.roots, search.known = vim.list_extend({ path }, roots), {}
  elseif what == 'Leav' then
    search.roots, search.known = roots, {}
  end
end

--- Return the file that a line is the path of, such as those above ripgrep's matches, or in the header of a diff.
---@param search sanderling.access.entries.Search
---@param line string
---@return sanderling.access.entries.Target?
local function heading_in(search, line)
  local name = line:match('^%+%+%+ ([^\t]+)') or line
  local _, blanks = name:gsub('%s', '')
  return blanks <= MAX_BLANKS and #name < 512 and target_of(search, name) or nil
end

--- Return the place that a line names below the path of its file.
---@param heading sanderling.access.entries.Target
---@param lines string[]
---@param number integer of the line
---@param line string it, cleaned
---@return sanderling.access.entries.Place?
local function place_below(heading, lines, number, line)
  local lnum, count, behind = line:match('^@@ %-[%d,]+ %+(%d+),?(%d*) @@()')
  local col, last = nil, nil
  if lnum then -- a hunk: where it changes the file, behind the lines that it repeats
    local first = math.max(1, assert(tonumber(lnum)))
    last = first + (tonumber(count) or 1) - 1
    while first < last and vim.startswith(lines[number + 1] or '', ' ') do
      first, number = first + 1, number + 1
    end
    lnum = tostring(first)
  else
    lnum, col, behind = line:match('^%s*(%d+):(%d+):()')
    if not lnum then
      lnum, col, behind = line:match('^%s+(%d+):(%d+)%s%s()')
    end
    if not lnum then
      lnum, behind = line:match('^%s*(%d+):()')
    end
  end
  local place = lnum and place_at(heading, assert(tonumber(lnum)), last, tonumber(col))
  if place then
    place.from, place.to = 1, assert(tonumber(behind))
  end
  return place or nil
end

--- Return the places that lines of text name as entries of the quickfix list. Below the path of a file, lines may begin
--- with the number of a line there, and diffs have hunks.
---@param lines string[]
---@param project string root for relative paths
---@param opts? sanderling.access.entries.Opts
---@return vim.quickfix.entry[]
function M.of(lines, project, opts)
  opts = opts or {}
  local roots = { opts.directory or project, opts.directory and project }
  local search, seen, items = new_search(roots), {}, {} ---@type _, table<string, true>, vim.quickfix.entry[]
  local fence, heading ---@type string?, sanderling.access.entries.Target?
  local is_diff = false
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
    line = cleaned(line)
    fence = words.fence_behind(line, fence)
    if i > MAX_LINES or #items >= M.MAX then
      break
    elseif not (opts.outside_fences and (fence or before)) then
      note_directory(search, line, roots)
      local places = places_in(search, line)
      for _, place in ipairs(opts.only_first and { places[1] } or places) do
        add(place, line)
      end
      local under = heading and #places == 0 and place_below(heading, lines, i, line)
      if under then
        add(under, line)
      end
      is_diff = vim.startswith(line, '+++ ') or is_diff and line:find('^[^ +@\\-]') == nil
      if not line:find('^%s*%d+[:%-]') and (not is_diff or vim.startswith(line, '+++ ')) then
        heading = line:find('%S') and heading_in(search, line) or nil
      end
    end
  end
  return items
end

return M
