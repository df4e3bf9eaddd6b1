-- Generates the lists of doc/sanderling.txt from the tables of verbs, options, keys and highlight groups, for generate_plugin.lua.
local highlights = require('sanderling.ui.highlights')
local key_table = require('sanderling.config.keys')
local keys = require('sanderling.ui.keys')
local schema = require('sanderling.config.schema')
local verbs = require('sanderling.verbs')

local HELP_WIDTH = 78

---@param text string
---@return integer
local function cells(text)
  return vim.fn.strdisplaywidth(text)
end

--- `text`, padded with tabs to column `col`, by at least one space.
---@param text string
---@param col integer
---@return string
local function tabbed(text, col)
  if cells(text) >= col then
    return text .. ' '
  end
  while cells(text) < col do
    local next_stop = (math.floor(cells(text) / 8) + 1) * 8
    text = text .. (next_stop <= col and '\t' or (' '):rep(col - cells(text)))
  end
  return text
end

---@param left string
---@param tag string right-aligned
---@return string
local function tagged(left, tag)
  return tabbed(left, HELP_WIDTH - #tag - 2) .. ('*%s*'):format(tag)
end

--- `left`, then `text` wrapped in column `col`.
---@param left string
---@param col integer
---@param text string
---@return string
local function described(left, col, text)
  local lines = require('sanderling.ui.words').wrapped(text, HELP_WIDTH - col)
  lines[1] = tabbed(left, col) .. lines[1]
  for i = 2, #lines do
    lines[i] = tabbed('', col) .. lines[i]
  end
  return table.concat(lines, '\n')
end

--- Return the tag of the verb's entry among the commands.
---@param verb sanderling.verbs.Verb
---@return string
local function tag_of(verb)
  return ':' .. verbs.command_of(verb):gsub(' ', '-')
end

---@param verb sanderling.verbs.Verb
---@return string
local function argument(verb)
  local nargs, name = verbs.argument_of(verb)
  return name and (nargs == '+' and ' {%s}' or ' [{%s}]'):format(name) or ''
end

--- Return the names of the commands in a form, and below them what those do that are no command.
---@param form 'slash'|'word'
---@param sign string
---@return string
local function names_list(form, sign)
  local names, others = {}, {}
  for _, verb in ipairs(verbs.list) do
    local name = verbs.name_in(verb, form)
    if name and verbs.name_in(verb, 'ex') == name then
      names[#names + 1] = sign .. name
    elseif name then
      local desc = verb.desc:gsub('^%l', string.upper)
      others[#others + 1] = described(('  %s%s%s'):format(sign, name, argument(verb)), 24, desc .. '.')
    end
  end
  local lines = require('sanderling.ui.words').wrapped(table.concat(names, ' '), HELP_WIDTH - 2)
  return '  ' .. table.concat(lines, '\n  ') .. '\n' .. table.concat(others, '\n')
end

---@param verb sanderling.verbs.Verb
---@return string
local function plug_of(verb)
  return ('<Plug>(Agent%s)'):format(verbs.capitalized(verb.name))
end

--- Return the maps that are more than a command in normal mode. The entries of the commands have the tags of the others.
---@return string
local function maps_list()
  local lines = {}
  for _, verb in ipairs(verbs.list) do
    local is_command = verbs.name_in(verb, 'ex') ~= nil
    local needs_text = verbs.argument_of(verb) == '+' and not verb.operator
    if verb.plug or is_command and needs_text then
      local does = is_command and ('|%s|'):format(tag_of(verb)) or verb.desc
      if verb.operator then
        does = does .. ' as an operator'
      elseif needs_text then
        does = 'begins ' .. does
      end
      local modes = (verb.plug or 'n'):gsub('.', '%0, '):sub(1, -3)
      local left = tabbed('  ' .. modes, 16) .. does
      lines[#lines + 1] = is_command and left or tagged(left, plug_of(verb))
    end
  end
  return table.concat(lines, '\n')
end

---@return string
local function groups_list()
  local lines = {}
  for _, group in ipairs(highlights) do
    local name, link, desc = unpack(group, 1, 3)
    local left = ('  %-20s%-17s%s'):format(name, link or '(nothing)', desc)
    lines[#lines + 1] = tagged(left, 'hl-' .. name)
  end
  return table.concat(lines, '\n')
end

--- Replace the text between `head` and an empty line, or `tail`, by `list`.
---@param text string
---@param head string
---@param list string
---@param tail? string
---@return string
local function replaced(text, head, list, tail)
  local _, before = text:find(head, 1, true)
  assert(before, 'the help no longer has: ' .. head)
  local behind = assert(text:find(tail or '\n\n', before, true))
  return text:sub(1, before) .. list .. text:sub(behind)
end

--- Return the head of a command's entry: its usage, its tag and that of its <Plug> map.
---@param verb sanderling.verbs.Verb
---@return string
local function head_of(verb)
  local range, bang = verb.range and '[range]' or '', verb.bang and '[!]' or ''
  local usage = (':%s%s%s%s'):format(range, verbs.command_of(verb), bang, argument(verb))
  local tags = ('%s* *%s'):format(tag_of(verb), plug_of(verb))
  if cells(usage) + #tags + 3 <= HELP_WIDTH then
    return tagged(usage, tags)
  end
  return tagged(usage, tag_of(verb)) .. '\n' .. tagged('', plug_of(verb))
end

--- Return the help with the heads of command entries updated from the table.
---@param text string
---@param page? string of the entries
---@return string
local function with_heads(text, page)
  for _, verb in ipairs(verbs.list) do
    if verbs.name_in(verb, 'ex') and verb.page == page then
      local first, last = text:find(('\n[^\n]*%%*%s%%*[^\n]*\n'):format(vim.pesc(tag_of(verb))))
      assert(first, ('the help has no entry for %s: write one'):format(tag_of(verb)))
      local _, behind = text:find(('^%%s+%%*%s%%*\n'):format(vim.pesc(plug_of(verb))), last + 1)
      text = ('%s\n%s\n%s'):format(text:sub(1, first - 1), head_of(verb), text:sub((behind or last) + 1))
    end
  end
  return text
end

--- The headings of the lists of keys.
local PLACES = {
  { 'chat', 'In the prompt and the transcript' },
  { 'prompt', 'In the prompt' },
  { 'transcript', 'In the transcript' },
  { 'global', 'Anywhere, unless mapped' },
  { 'anywhere', 'Anywhere while a question is pending, unless mapped' },
  { 'file', 'In a file with unreviewed changes, |sanderling-review|' },
  { 'comment', 'In a buffer with comments, |sanderling-comments|' },
  { 'walk', 'In a file of a walk, |sanderling-walk|' },
  { 'edit', 'In a file with a pending inline edit, |:AgentEdit|' },
  { 'answer', "In an inline answer's float (with the transcript's keys) or file" },
  { 'job', 'In a job\'s output, |:Agent-terminal|' },
  { 'question', 'In a question, |sanderling-approvals|' },
  { 'form', 'In a form, |sanderling-mcp-forms|' },
  { 'trust', 'In the |:Agent-trust| page' },
  { 'waiting', 'In the |:Agent-queue| list' },
  { 'mcp', 'In the |:Agent-mcp| list' },
  { 'rules', 'On the |:AgentRules| page' },
  { 'picker', 'In a picker plugin, |sanderling-picker|' },
  { 'rewind', 'In the |:Agent-rewind| preview' },
  { 'page', 'In these and all others (<Esc> not in forms, |:Agent-trust|, |:Agent-queue|)' },
}

-- Keys of many places, which are listed only in these.
local COMMON = { close = true, close_page = true, show_keys = true, stop = true }
local WITH_COMMON = { chat = true, prompt = true, transcript = true, page = true }

--- Return the modes of a key in a place of the list. Those of the prompt and the transcript are in 'chat' if they are the same.
---@param row table
---@param place string
---@return string?
local function modes_in(row, place)
  local places = row.places
  local both = places.prompt and places.prompt == places.transcript and places.prompt or nil
  if place == 'chat' or (both and (place == 'prompt' or place == 'transcript')) then
    return place == 'chat' and both or nil
  end
  return places[place]
end

---@return string
local function keys_list()
  local lines = {}
  for _, place in ipairs(PLACES) do
    lines[#lines + 1] = place[2] .. ' ~'
    for _, row in ipairs(key_table.rows) do
      local modes = modes_in(row, place[1])
      if modes and (WITH_COMMON[place[1]] or not COMMON[row.option]) then
        local key = keys.joined(keys.list(row.default or 'none')):gsub('<LocalLeader>', '\\')
        local desc = row.desc:gsub('^%l', string.upper)
        local left = ('  %-4s%-13s%-21s'):format(modes, key, row.option)
        lines[#lines + 1] = described(left, cells(left) + 1, desc .. '.')
      end
    end
    lines[#lines + 1] = ''
  end
  return table.concat(lines, '\n')
end

---@param value any
---@return string
local function literal(value)
  if type(value) ~= 'table' then
    return type(value) == 'string' and ("'%s'"):format(value) or tostring(value)
  end
  local items = vim.tbl_map(literal, value)
  return #items == 0 and '{}' or ('{ %s }'):format(table.concat(items, ', '))
end

--- Return the help with types and defaults of options updated from the table.
---@param text string
---@return string
local function with_defaults(text)
  for _, row in ipairs(schema.rows) do
    local group, name = row.name:match('^(.*)%.(.*)$')
    if group ~= 'keys' then
      local tag = ('*sanderling-option-%s*\n'):format(group or row.name)
      local from = text:sub(1, (text:find(tag, 1, true))):match('.*()\n') -- above its line
      local indent = group and '   ' or ''
      local pattern = ('\n%s%s%%s+%%l+\t*%%(default [^\n]*\n'):format(indent, name or row.name)
      local first, last = text:find(pattern, from)
      assert(first, ('the help has no entry for the option %s: write one'):format(row.name))
      local left = tabbed(indent .. (name or row.name), 16) .. (row.type or type(row.default))
      local head = ('%s(default %s)'):format(tabbed(left, 24), literal(row.default):gsub("'", '"'))
      local tag_here = text:sub(first, last):match('%*([^*\n]+)%*\n')
      if tag_here then
        head = tagged(head, tag_here)
      end
      text = ('%s\n%s\n%s'):format(text:sub(1, first - 1), head, text:sub(last + 1))
    end
  end
  return text
end

--- Return the help with all lists and heads updated from the tables.
---@param text string
---@param page? string help file with only some entries of commands
---@return string
return function(text, page)
  if page then
    return with_heads(text, page)
  end
  text = with_defaults(with_heads(text))
  local names_follow = 'File names written by the model or a command'
  text = replaced(text, "before the chat is first shown.\n\n", keys_list() .. '\n', names_follow)
  text = replaced(text, 'Built-in slash commands ~\n', names_list('slash', '/'))
  text = replaced(text, 'Words ~\n', names_list('word', ':'))
  text = replaced(text, '  Modes\t\tDoes ~\n', maps_list())
  return replaced(text, '  Group               Link             For ~\n', groups_list())
end
