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

--- Return a sentence about what the verb does, with the equivalent command.
---@param verb sanderling.verbs.Verb
---@return string
local function sentence(verb)
  local text = verb.desc:gsub('^%l', string.upper)
  if verb.undo then
    text = ('%s; "/%s %s": %s'):format(text, verb.name, verb.undo, verb.bang)
  end
  return text .. (verbs.name_in(verb, 'ex') and (': |%s|'):format(tag_of(verb)) or '.')
end

---@param verb sanderling.verbs.Verb
---@return string
local function argument(verb)
  local nargs, name = verbs.argument_of(verb)
  return name and (nargs == '+' and ' {%s}' or ' [{%s}]'):format(name) or ''
end

---@param form 'slash'|'word'
---@param sign string
---@param col integer
---@return string
local function list_of(form, sign, col)
  local lines = {}
  for _, verb in ipairs(verbs.list) do
    local name = verbs.name_in(verb, form)
    if name then
      local usage = ('  %s%s%s'):format(sign, name, argument(verb))
      lines[#lines + 1] = described(usage, col, sentence(verb))
    end
  end
  return table.concat(lines, '\n')
end

---@return string
local function maps_list()
  local lines = {}
  for _, verb in ipairs(verbs.list) do
    local is_command = verbs.name_in(verb, 'ex') ~= nil
    if is_command or verb.plug then
      local name = verbs.capitalized(verb.name)
      local does = is_command and ('|%s|'):format(tag_of(verb)) or verb.desc
      if verb.operator then
        does = does .. ' as an operator'
      elseif verbs.argument_of(verb) == '+' then
        does = 'begins ' .. does
      end
      local modes = (verb.plug or 'n'):gsub('.', '%0, '):sub(1, -3)
      lines[#lines + 1] = tagged(tabbed('  ' .. modes, 16) .. does, ('<Plug>(Agent%s)'):format(name))
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

--- Return the help with the heads of command entries updated from the table.
---@param text string
---@return string
local function with_heads(text)
  for _, verb in ipairs(verbs.list) do
    if verbs.name_in(verb, 'ex') then
      local range, bang = verb.range and '[range]' or '', verb.bang and '[!]' or ''
      local head = (':%s%s%s%s'):format(range, verbs.command_of(verb), bang, argument(verb))
      local tag = tag_of(verb)
      local first, last = text:find(('\n[^\n]*%%*%s%%*\n'):format(vim.pesc(tag)))
      assert(first, ('the help has no entry for %s: write one'):format(tag))
      head = tagged(head, tag)
      text = ('%s\n%s\n%s'):format(text:sub(1, first - 1), head, text:sub(last + 1))
    end
  end
  return text
end

--- The headings of the lists of keys.
local PLACES = {
  { 'prompt', 'In the prompt' },
  { 'transcript', 'In the transcript' },
  { 'anywhere', 'Anywhere while a question is pending, unless mapped' },
  { 'file', 'In a file with unreviewed changes, |sanderling-review|' },
  { 'edit', 'In a file with a pending inline edit, |:AgentEdit|' },
  { 'answer', 'In an inline answer\'s float, in addition to the transcript\'s keys' },
  { 'asked', 'In a file with an inline answer, |:AgentAsk|' },
  { 'job', 'In a job\'s output, |:Agent-terminal|' },
  { 'question', 'In a question, |sanderling-approvals|' },
  { 'form', 'In a form, |sanderling-mcp-forms|' },
  { 'trust', 'In the |:Agent-trust| page' },
  { 'waiting', 'In the |:Agent-queue| list' },
  { 'mcp', 'In the |:Agent-mcp| list' },
  { 'rules', 'On the |:AgentRules| page' },
  { 'ask', 'In the small |:AgentAsk| prompt' },
  { 'rewind', 'In the |:Agent-rewind| preview' },
  { 'page', 'In these and all others (<Esc> not in forms, |:Agent-trust|, |:Agent-queue|)' },
}

-- The keys of all floats and pages are listed once, in 'page', not in these places.
local COMMON = { close = true, close_page = true, show_keys = true }
local WITHOUT_COMMON =
  { question = true, form = true, trust = true, waiting = true, mcp = true, rules = true, rewind = true, ask = true }

---@return string
local function keys_list()
  local lines = {}
  for _, place in ipairs(PLACES) do
    lines[#lines + 1] = place[2] .. ' ~'
    for _, row in ipairs(key_table.rows) do
      if row.places[place[1]] and not (COMMON[row.option] and WITHOUT_COMMON[place[1]]) then
        local modes = row.places[place[1]]:gsub('.', '%0, '):sub(1, -3)
        local key = keys.joined(keys.list(row.default or 'none'))
        local left = tabbed(('  %s'):format(modes), 10) .. key
        local desc = row.desc:gsub('^%l', string.upper)
        lines[#lines + 1] = described(tabbed(left, 28) .. row.option, 50, desc .. '.')
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

--- Return all options with their defaults, as setup() takes them. The lists of keys have the defaults of `keys`.
---@return string
local function setup_list()
  local lines, group = {}, nil
  for _, row in ipairs(schema.rows) do
    local row_group, name = row.name:match('^(.*)%.(.*)$')
    if row_group ~= 'keys' then
      if group and row_group ~= group then
        lines[#lines + 1] = '      },'
      end
      if row_group and row_group ~= group then
        lines[#lines + 1] = ('      %s = {'):format(row_group)
      end
      group = row_group
      local indent = group and '        ' or '      '
      lines[#lines + 1] = ('%s%s = %s,'):format(indent, name or row.name, literal(row.default))
    end
  end
  return table.concat(lines, '\n') .. (group and '\n      },' or '')
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
---@return string
return function(text)
  text = with_defaults(with_heads(text))
  local names_follow = 'File names written by the model or a command'
  text = replaced(text, "before the chat is first shown.\n\n", keys_list() .. '\n', names_follow)
  local setup_head = "with their\ndefaults: >lua\n    require('sanderling').setup({\n"
  text = replaced(text, setup_head, setup_list(), '\n    })\n<')
  text = replaced(text, '  Command\t\tDoes ~\n', list_of('slash', '/', 24))
  text = replaced(text, '  Word\t\t\tDoes ~\n', list_of('word', ':', 24))
  text = replaced(text, '  Modes\t\tDoes ~\n', maps_list())
  return replaced(text, '  Group               Link             For ~\n', groups_list())
end
