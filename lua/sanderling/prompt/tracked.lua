--- A project's files, for completion: tracked by git, or at least not ignored. When a mention begins they are listed
--- by a separate process and indexed in slices, so that no key has to wait.
---
--- The index stores a mask of each file's letters. A file can only match if its mask includes all letters of the query,
--- which leaves few of 100,000 files to compare.
local M = {}

local bit = require('bit')
local git = require('sanderling.access.git')
local programs = require('sanderling.access.programs')
local time = require('sanderling.ui.time')

local SLICE_MS, PAUSE_MS = 3, 1 -- of indexing
local BUDGET_MS = 4 -- per search
local FRESH_MS = 2000 -- before the list is renewed
local LIST_MS = 30000 -- timeout, because a FIFO in place of a .gitignore would block for ever
local MAX_RANKED = 200 -- files of one rank to sort
local MAX_FILES = 500000
local LIST = { 'ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate' }

---@class (exact) sanderling.prompt.tracked.Index
---@field paths string[] directories end in a slash
---@field folded string[] lowercase paths
---@field names integer[] start of each file name, from 1
---@field masks integer[]
---@field source string the list it was built from
---@field listed_ms? number time of the last listing
---@field is_listing boolean

---@type table<string, sanderling.prompt.tracked.Index> by project
local indexes = {}

local BITS = {} ---@type table<integer, integer> by byte
for byte = 0, 255 do
  local letter = byte >= 97 and byte <= 122 and byte - 97
  local digit = byte >= 48 and byte <= 57 and 26
  local other = ({ [46] = 27, [47] = 28, [95] = 29, [45] = 30 })[byte] -- . / _ -
  local place = letter or digit or other
  BITS[byte] = place and bit.lshift(1, place) or 0
end

---@param text string lowercase
---@return integer
local function mask_of(text)
  local mask = 0
  for i = 1, #text do
    mask = bit.bor(mask, BITS[text:byte(i)])
  end
  return mask
end

---@return sanderling.prompt.tracked.Index
local function empty()
  return { paths = {}, folded = {}, names = {}, masks = {}, source = '', is_listing = false }
end

---@param index sanderling.prompt.tracked.Index
---@param path string
local function add(index, path)
  local folded, at = path:lower(), #index.paths + 1
  index.paths[at], index.folded[at] = path, folded
  index.names[at] = (path:sub(1, -2):match('^.*()/') or 0) + 1
  index.masks[at] = mask_of(folded)
end

--- Return the virtual environments among the files of `source`, each with a slash: .gitignore need not name them.
---@param source string names, each followed by a NUL
---@return string[]
local function environments(source)
  local found, at = {}, 1
  while true do
    local from, to = source:find('/pyvenv.cfg\0', at, true)
    if not from then
      return found
    end
    local begin = from
    while begin > at and source:byte(begin - 1) ~= 0 do
      begin = begin - 1
    end
    found[#found + 1] = source:sub(begin, from)
    at = to + 1
  end
end

--- Index the files of `source` in slices, then replace the old index.
---@param project string
---@param source string names, each followed by a NUL
local function take_in(project, source)
  local index, seen, at = empty(), {}, 1
  index.source = source
  local skipped = environments(source)
  local function is_installed(path)
    return ('/' .. path):find('/node_modules/', 1, true)
      or vim.iter(skipped):any(function(directory)
        return vim.startswith(path, directory)
      end)
  end
  local function directories_of(path)
    local behind = path:match('^.*()/')
    while behind do
      local directory = path:sub(1, behind)
      if seen[directory] then
        return
      end
      seen[directory] = true
      add(index, directory)
      behind = directory:sub(1, -2):match('^.*()/')
    end
  end
  local function slice()
    local till = time.now_ms() + SLICE_MS
    while at <= #source and #index.paths < MAX_FILES do
      local behind = source:find('\0', at, true) or #source + 1
      local path = source:sub(at, behind - 1)
      at = behind + 1
      if path ~= '' and not path:find('%c') and not is_installed(path) then
        add(index, path)
        directories_of(path)
      end
      if #index.paths % 50 == 0 and time.now_ms() > till then
        return vim.defer_fn(slice, PAUSE_MS)
      end
    end
    index.listed_ms = time.now_ms()
    indexes[project] = index
  end
  slice()
end

--- List the files that git knows, or that ripgrep finds if git fails.
---@param project string
---@param on_list fun(source?: string)
local function list(project, on_list)
  local function hand_on(result)
    vim.schedule(function()
      on_list(result.code == 0 and result.stdout or nil)
    end)
  end
  local function find()
    local rg = programs.find('rg', project)
    local argv, opts = { rg, '--files', '--null' }, { cwd = project, timeout = LIST_MS }
    if not rg or not pcall(vim.system, argv, opts, hand_on) then
      on_list()
    end
  end
  local process = git.start(project, LIST, function(result)
    if result.code == 0 then
      hand_on(result)
    else
      vim.schedule(find)
    end
  end, nil, LIST_MS)
  if not process then
    find()
  end
end

--- Update the list of a project's files in the background.
---@param project string
function M.refresh(project)
  local index = indexes[project] or empty()
  indexes[project] = index
  local is_fresh = index.listed_ms and time.now_ms() - index.listed_ms < FRESH_MS
  if index.is_listing or is_fresh then
    return
  end
  index.is_listing = true
  list(project, function(source)
    index.is_listing, index.listed_ms = false, time.now_ms()
    if source and source ~= index.source then
      take_in(project, source)
    end
  end)
end

-- Ranks of matches, best first.
local NAME_BEGINS, NAME_HAS, PATH_HAS, LETTERS_IN_NAME, LETTERS = 1, 2, 3, 4, 5

--- Return whether `text` contains all letters of `query` in order.
---@param text string
---@param query string
---@param from integer
---@return boolean
local function has_letters(text, query, from)
  for i = 1, #query do
    local at = text:find(query:sub(i, i), from, true)
    if not at then
      return false
    end
    from = at + 1
  end
  return true
end

---@param index sanderling.prompt.tracked.Index
---@param i integer
---@param query string
---@return integer? rank
local function rank_of(index, i, query)
  local text, name = index.folded[i], index.names[i]
  if text:find(query, 1, true) then
    local at = text:find(query, name, true)
    return at == name and NAME_BEGINS or at and NAME_HAS or PATH_HAS
  elseif has_letters(text, query, name) then
    return LETTERS_IN_NAME
  end
  return has_letters(text, query, 1) and LETTERS or nil
end

--- Return the matching files by rank, as many as are found within the time budget.
---@param index sanderling.prompt.tracked.Index
---@param query string
---@return integer[][]
local function ranked(index, query)
  local mask, till = mask_of(query), time.now_ms() + BUDGET_MS
  local ranks, compared = { {}, {}, {}, {}, {} }, 0
  for i = 1, #index.paths do
    if bit.band(index.masks[i], mask) == mask then
      local rank = rank_of(index, i, query)
      if rank and #ranks[rank] < MAX_RANKED then
        table.insert(ranks[rank], i)
      elseif rank == NAME_BEGINS then
        break
      end
      compared = compared + 1
      if compared % 64 == 0 and time.now_ms() > till then
        break
      end
    end
  end
  return ranks
end

--- Return a comparison of files by index: those with the capitals of `query` first, then the shorter ones.
---@param index sanderling.prompt.tracked.Index
---@param query string
---@return fun(one: integer, other: integer): boolean
local function order_of(index, query)
  local has_capitals = query ~= query:lower()
  return function(one, other)
    local path, other_path = index.paths[one], index.paths[other]
    if has_capitals then
      local is_exact = path:find(query, 1, true) ~= nil
      if is_exact ~= (other_path:find(query, 1, true) ~= nil) then
        return is_exact
      end
    end
    return #path < #other_path
  end
end

--- Return the files that match `query` best.
---@param project string
---@param query string
---@param count integer
---@return string[]
function M.search(project, query, count)
  local index, found = indexes[project] or empty(), {}
  local order = order_of(index, query)
  for _, indices in ipairs(ranked(index, query:lower())) do
    table.sort(indices, order)
    for _, i in ipairs(indices) do
      found[#found + 1] = index.paths[i]
      if #found == count then
        return found
      end
    end
  end
  return found
end

---@param project string
---@return integer number of indexed files and directories
function M.count(project)
  return indexes[project] and #indexes[project].paths or 0
end

return M
