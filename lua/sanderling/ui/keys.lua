--- Setting the keys of buffers and floats from a table of rows (config/keys.lua). Each row has an option and a
--- buffer-local <Plug> map; its action is given where it is set.
local M = {}

---@alias sanderling.ui.keys.Place 'prompt'|'transcript'|'question'|'whole'|'form'|'trust'|'waiting'|'job'|'mcp'|'rules'|'plugins'|'worktrees'|'again'|'rewind'|'blame'|'picker'|'file'|'comment'|'walk'|'edit'|'ask'|'answer'|'asked'|'page'|'anywhere'|'global'

---@class (exact) sanderling.ui.keys.Row
---@field option string of the table `keys`
---@field default sanderling.config.Key
---@field places table<sanderling.ui.keys.Place, string> its modes there, a letter each
---@field desc string
---@field is_expr? boolean it types other keys

---@class (exact) sanderling.ui.keys.Table
---@field rows sanderling.ui.keys.Row[]
---@field allowing table<string, true> options whose keys a terminal must not send as Escape and other keys
---@field commands table<sanderling.ui.keys.Place, [string, string]> typed there, in addition to its keys
---@field groups table<sanderling.ui.keys.Place, string> of which-key, for keys that are a leader and two other keys

---@type sanderling.ui.keys.Table
local known = { rows = {}, allowing = {}, commands = {}, groups = {} }

--- The keys in effect, by option.
---@type table<string, sanderling.config.Key>
M.chosen = {}

---@param keys sanderling.ui.keys.Table
function M.register(keys)
  known = keys
  for _, row in ipairs(keys.rows) do
    M.chosen[row.option] = row.default
  end
end

--- Special keys that are sent as Escape, `[` or `O`, and one letter, so that typing can produce them: `<Esc>OPlease`
--- contains <F1>, `<Esc>Okay` the plus of the keypad.
local TYPED =
  { '^F[1-4]$', '^Up$', '^Down$', '^Left$', '^Right$', '^Home$', '^End$', '^k%u', '^k%d' }

--- Would a terminal send a part of `lhs` as Escape and other keys?
---@param lhs string
---@return boolean
function M.has_escape(lhs)
  for name in vim.fn.keytrans(vim.keycode(lhs)):gmatch('<([^<>]+)>') do
    local base = name:match('[^-]+$') or '-'
    local is_typed = vim.iter(TYPED):any(function(pattern)
      return base:find(pattern) ~= nil
    end)
    if base == 'Esc' or ('-' .. name):find('%-[MAT]%-.') or name == base and is_typed then
      return true
    end
  end
  return false
end

--- Return the modes of an option's keys in `place`, a letter each.
---@param option string
---@param place sanderling.ui.keys.Place
---@return string
function M.modes_of(option, place)
  for _, row in ipairs(known.rows) do
    if row.option == option then
      return row.places[place]
    end
  end
  error(option)
end

---@param chosen sanderling.config.Key
---@return string[]
function M.list(chosen)
  return type(chosen) == 'table' and chosen or { chosen or nil }
end

--- Return the keys of an option to set. Keys that allow something must not get an Escape from <LocalLeader>.
---@param option string
---@return string[]
function M.of(option)
  return vim.tbl_filter(function(lhs)
    return not (known.allowing[option] and M.has_escape(lhs))
  end, M.list(M.chosen[option]))
end

--- Return a key as the user types it, with the leader's value.
---@param lhs string
---@return string
local function typed(lhs)
  return (
    lhs:gsub('<%a*[Ll]eader>', function(leader)
      return vim.fn.keytrans(vim.keycode(leader))
    end)
  )
end

--- Return keys as a list in words: `q, <Esc>`, and digits in a row as `1-9`.
---@param list string[]
---@return string
function M.joined(list)
  local is_row = #list > 1
  for number, lhs in ipairs(list) do
    is_row = is_row and lhs == tostring(number)
  end
  return is_row and ('1-%d'):format(#list) or table.concat(list, ', ')
end

--- Return the first of the keys as the user types it, else `otherwise`.
---@param chosen sanderling.config.Key
---@param otherwise string
---@return string
function M.name(chosen, otherwise)
  local first = M.list(chosen)[1]
  return first and typed(first) or otherwise
end

--- Return the first key of an option, or a command, and what it does.
---@param option string
---@param command string where there is no key
---@param does string
---@return string
function M.hint(option, command, does)
  return ('%s %s'):format(M.name(M.chosen[option], command), does)
end

local MODES = { n = 'normal', i = 'insert', x = 'visual' }

--- Count the rows of `place` by key.
---@param place sanderling.ui.keys.Place
---@return table<string, integer>
local function rows_by_key(place)
  local count = {} ---@type table<string, integer>
  for _, row in ipairs(known.rows) do
    for _, lhs in ipairs(row.places[place] and M.of(row.option) or {}) do
      local key = vim.keycode(lhs)
      count[key] = (count[key] or 0) + 1
    end
  end
  return count
end

--- Return what a row does, with its mode if one of its keys does something else in another mode.
---@param row sanderling.ui.keys.Row
---@param place sanderling.ui.keys.Place
---@param count table<string, integer>
---@return string
local function desc_in(row, place, count)
  local desc = row.desc:gsub('|(sanderling[%w-]*)|', ':help %1'):gsub('|', '')
  local mode = MODES[row.places[place]]
  local is_shared = vim.iter(M.of(row.option)):any(function(lhs)
    return count[vim.keycode(lhs)] > 1
  end)
  if not is_shared or not mode or desc:find(mode .. ' mode', 1, true) then
    return desc
  end
  return ('%s (%s mode)'):format(desc, mode)
end

--- Return the keys of `place` and what they do, for a page.
---@param place sanderling.ui.keys.Place
---@return string[]
function M.lines(place)
  local names, descs, width, count = {}, {}, 0, rows_by_key(place)
  local function add(name, desc)
    names[#names + 1], descs[#descs + 1] = name, desc
    width = math.max(width, vim.api.nvim_strwidth(name))
  end
  if known.commands[place] then
    add(unpack(known.commands[place]))
  end
  for _, row in ipairs(known.rows) do
    local chosen = M.of(row.option)
    if row.places[place] and #chosen > 0 then
      add(M.joined(vim.tbl_map(typed, chosen)), desc_in(row, place, count))
    end
  end
  for i, name in ipairs(names) do
    names[i] = name .. (' '):rep(width + 3 - vim.api.nvim_strwidth(name)) .. descs[i]
  end
  return names
end

---@param row sanderling.ui.keys.Row
---@return string
local function desc_of(row)
  return 'Agent: ' .. row.desc:gsub('|', '')
end

--- Return the raw keys of a map.
---@param map vim.api.keyset.get_keymap
---@return string
local function raw(map)
  return vim.keycode(map.lhs)
end

--- Has the user mapped `lhs`, its beginning, or keys that begin with it? A beginning that does not wait for more keys
--- is no obstacle: which-key and mini.clue map it so, read the other keys themselves, and then run the longer map.
---@param mode string
---@param lhs string
---@return boolean
function M.is_taken(mode, lhs)
  if vim.fn.mapcheck(lhs, mode) == '' then
    return false
  end
  local keys = vim.keycode(lhs)
  local maps = vim.list_extend(vim.api.nvim_get_keymap(mode), vim.api.nvim_buf_get_keymap(0, mode))
  return vim.iter(maps):any(function(map)
    local is_ours = vim.startswith(map.desc or '', 'Agent: ')
    local is_longer = vim.startswith(raw(map), keys)
    local is_shorter = map.nowait == 0 and vim.startswith(keys, raw(map))
    return not is_ours and (is_longer or is_shorter)
  end)
end

--- The places that are the user's own files.
---@type table<sanderling.ui.keys.Place, true>
local USERS = { file = true, comment = true, walk = true, edit = true, asked = true }

--- May a key be set in `place`? In the user's own files their maps win.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param modes string
---@param lhs string
---@return boolean
local function is_free(buf, place, modes, lhs)
  return not USERS[place]
    or vim.api.nvim_buf_call(buf, function()
      return not M.is_taken(modes, lhs)
    end)
end

--- Return the first key of an option that is set in `buf`, as the user types it.
---@param buf integer
---@param option string
---@return string?
function M.name_in(buf, option)
  for _, row in ipairs(known.rows) do
    for _, lhs in ipairs(row.option == option and M.of(option) or {}) do
      for _, map in ipairs(vim.api.nvim_buf_get_keymap(buf, 'n')) do
        if map.desc == desc_of(row) and vim.keycode(map.lhs) == vim.keycode(lhs) then
          return typed(lhs)
        end
      end
    end
  end
end

---@type table<string, true> by buffer and prefix
local named = {}

--- Name the group of `lhs` for which-key, if that is loaded.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param lhs string
local function name_group(buf, place, lhs)
  local prefix = lhs:match('^(<%a*[Ll]eader>.)[^<]$')
  local which_key = prefix and known.groups[place] and package.loaded['which-key']
  local id = ('%d %s'):format(buf, prefix or '')
  if type(which_key) == 'table' and which_key.add and not named[id] then
    named[id] = true
    which_key.add({ prefix, group = known.groups[place], buffer = buf })
  end
end

--- Set the keys of `place` in `buf` for which there is an action. An action gets its key, nil for the <Plug> map.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param actions table<string, fun(lhs?: string): any> by option
function M.set(buf, place, actions)
  for _, row in ipairs(known.rows) do
    local action = row.places[place] and actions[row.option]
    local function map(lhs, key_)
      vim.keymap.set(vim.split(row.places[place], ''), lhs, function()
        return action(key_)
      end, {
        buffer = buf,
        expr = row.is_expr,
        nowait = place ~= 'prompt' and place ~= 'transcript',
        desc = desc_of(row),
      })
    end
    if action then
      map(('<Plug>(AgentKey-%s)'):format(row.option))
      for _, lhs in ipairs(M.of(row.option)) do
        if is_free(buf, place, row.places[place], lhs) then
          map(lhs, lhs)
          name_group(buf, place, lhs)
        end
      end
    end
  end
end

--- Remove the keys of `place` from `buf`.
---@param buf integer
---@param place sanderling.ui.keys.Place
function M.clear(buf, place)
  for _, map in ipairs(vim.api.nvim_buf_get_keymap(buf, 'n')) do
    for _, row in ipairs(known.rows) do
      if row.places[place] and map.desc == desc_of(row) then
        vim.api.nvim_buf_del_keymap(buf, 'n', map.lhs)
      end
    end
  end
end

---@type [string, string][] mode and key of each map that `set_global` has made
local global = {}

--- Set the keys of the place 'global', in all buffers, where the user has not mapped them. Those set before are removed.
---@param plugs table<string, string> <Plug> maps by option
function M.set_global(plugs)
  for _, map in ipairs(global) do
    if vim.startswith(vim.fn.maparg(map[2], map[1], false, true).desc or '', 'Agent: ') then
      vim.keymap.del(map[1], map[2])
    end
  end
  global = {}
  for _, row in ipairs(known.rows) do
    for _, lhs in ipairs(row.places.global and M.of(row.option) or {}) do
      for mode in row.places.global:gmatch('.') do
        if not M.is_taken(mode, lhs) then
          vim.keymap.set(mode, lhs, plugs[row.option], { desc = desc_of(row) })
          global[#global + 1] = { mode, lhs }
        end
      end
    end
  end
end

---@type table<string, true> by place and buffer
local given = {}

--- Set the keys of `place` in `buf` if it `has_any` of what they act on, else remove them.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param has_any fun(): boolean called for a loaded buffer
---@param actions table<string, fun(lhs?: string): any> by option
function M.keep(buf, place, has_any, actions)
  local id = place .. buf
  local is_loaded = vim.api.nvim_buf_is_loaded(buf)
  local is_wanted = is_loaded and has_any()
  if is_wanted and not given[id] then
    M.set(buf, place, actions)
  elseif not is_wanted and given[id] and vim.api.nvim_buf_is_valid(buf) then
    M.clear(buf, place) -- an unloaded buffer keeps its maps
  end
  given[id] = is_wanted or nil
end

--- Set the keys of `place` in `buf` again at the next `keep`: other keys that were removed may have been among them.
---@param buf integer
---@param place sanderling.ui.keys.Place
function M.renew(buf, place)
  given[place .. buf] = nil
end

return M
