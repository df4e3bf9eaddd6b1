--- The table of keys in the chat's buffers and floats. Each has an option and a buffer-local <Plug> map; its action is
--- given where it is set. `make format` generates the tables in the help from it.
local M = {}

---@alias sanderling.ui.keys.Place 'prompt'|'transcript'|'question'|'whole'|'form'|'trust'|'waiting'|'job'|'mcp'|'rewind'|'file'|'edit'|'ask'|'answer'|'asked'|'page'|'anywhere'

---@class (exact) sanderling.ui.keys.Row
---@field option string of the table `keys`
---@field default sanderling.config.Key
---@field places table<sanderling.ui.keys.Place, string> its modes there, a letter each
---@field desc string
---@field is_expr? boolean it types other keys

local BOTH = { prompt = 'n', transcript = 'n' }

---@param option string
---@param default sanderling.config.Key
---@param places table<sanderling.ui.keys.Place, string>
---@param desc string
---@param is_expr? boolean
---@return sanderling.ui.keys.Row
local function key(option, default, places, desc, is_expr)
  return { option = option, default = default, places = places, desc = desc, is_expr = is_expr }
end

-- None shadows a key of Vim's for writing in the prompt.
---@type sanderling.ui.keys.Row[]
M.rows = {
  key('send_normal', { '<CR>', '<C-s>' }, { prompt = 'n', ask = 'n' }, 'send the prompt'),
  key('send_insert', '<C-s>', { prompt = 'i', ask = 'i' }, 'send the prompt, stay in insert mode'),
  key(
    'stop',
    '<C-c>',
    { prompt = 'niv', transcript = 'nv', job = 'nt', edit = 'n', answer = 'nv', asked = 'n' },
    'stop the turn, the job, the edit or the answer'
  ),
  key('steer', '<M-s>', { prompt = 'ni' }, 'send in the middle of the turn: |sanderling-waiting|'),
  key('hide', { 'q', '<LocalLeader>q' }, { transcript = 'n' }, 'hide the chat'),
  key('hide_prompt', '<LocalLeader>q', { prompt = 'n' }, 'hide the chat'),
  key('history_previous', '<M-p>', { prompt = 'ni', ask = 'ni' }, 'older prompt'),
  key('history_next', '<M-n>', { prompt = 'ni', ask = 'ni' }, 'newer prompt'),
  key(
    'mention_pasted',
    '<M-m>',
    { prompt = 'ni', ask = 'ni' },
    'replace pasted text by a mention: |sanderling-pasted|'
  ),
  key('scroll_up', '<PageUp>', { prompt = 'ni' }, 'scroll the transcript a page up'),
  key('scroll_down', '<PageDown>', { prompt = 'ni' }, 'scroll the transcript a page down'),
  key('go_to_end', '<C-End>', { prompt = 'ni' }, 'to the end of the transcript'),
  key('mode', '<S-Tab>', { prompt = 'ni' }, 'next mode: |:AgentMode|'),
  key('next_message', ']]', { transcript = 'n' }, 'to the next header'),
  key('previous_message', '[[', { transcript = 'n' }, 'to the previous header'),
  key('next_tool', ']t', { transcript = 'n' }, 'to the next tool call; takes a count'),
  key('previous_tool', '[t', { transcript = 'n' }, 'to the previous tool call; takes a count'),
  key('select_message', 'im', { transcript = 'ox' }, 'the message, without its header'),
  key('select_whole_message', 'am', { transcript = 'ox' }, 'the message'),
  key('select_code', 'ic', { transcript = 'ox' }, 'the fenced block, without its fences'),
  key('select_whole_code', 'ac', { transcript = 'ox' }, 'the fenced block'),
  key('yank_code', '<LocalLeader>y', { transcript = 'n' }, 'yank the fenced block'),
  key('open_code', '<LocalLeader>o', { transcript = 'n' }, 'open the fenced block in a new buffer'),
  key('apply_code', '<LocalLeader>i', { transcript = 'n' }, 'offer the fenced block as an edit'),
  key(
    'write',
    { 'i', 'a', 'o' },
    { transcript = 'n', answer = 'n' },
    'to the prompt, in insert mode'
  ),
  key('open', '<CR>', { transcript = 'n' }, 'open the closed fold, or else the file named here'),
  key(
    'go_to_file',
    'gf',
    { transcript = 'n' },
    'open the file named here, as `path` or `path:line`, in the last code window'
  ),
  key('inspect', 'K', { transcript = 'n' }, 'show the full input and result of the tool call'),
  key('question', '<LocalLeader>a', BOTH, 'to the pending question'),
  key('waiting', '<LocalLeader>w', BOTH, 'show the queued prompts'),
  key('next_session', '<LocalLeader>n', BOTH, 'next session; takes a count'),
  key('previous_session', '<LocalLeader>p', BOTH, 'previous session; takes a count'),

  key('question_once', 'a', { question = 'n' }, 'allow it once'),
  key('question_session', 's', { question = 'n' }, 'allow it for this session'),
  key('question_always', 'A', { question = 'n' }, 'allow it always'),
  key('question_deny', 'd', { question = 'n' }, 'deny it, and all questions asked with it'),
  key('question_reason', 'D', { question = 'n' }, 'the same, with a reason'),
  key('question_alone', 'x', { question = 'n' }, 'deny only this one'),
  key('question_alone_reason', 'X', { question = 'n' }, 'the same, with a reason'),
  key('question_option', 'o', { question = 'n' }, "choose among another agent's answers"),
  key('question_next', '<Tab>', { question = 'n' }, 'next question'),
  key('question_previous', '<S-Tab>', { question = 'n' }, 'previous question'),
  key('question_whole', 'p', { question = 'n' }, 'show the full request in a tab page'),
  key('question_later', { 'q', '<Esc>' }, { question = 'n' }, 'close without an answer'),

  key('answer_focus', '<C-w>a', { anywhere = 'nx' }, 'to the pending question'),
  key('answer_once', false, { anywhere = 'nix' }, 'allow the pending request once'),
  key('answer_deny', '<M-d>', { anywhere = 'nix' }, 'deny the pending request'),

  key('form_change', '<CR>', { form = 'n' }, 'change the field'),
  key('form_send', '<C-s>', { form = 'n' }, 'send the form'),
  key('form_decline', 'd', { form = 'n' }, 'decline the form'),
  key('form_cancel', 'x', { form = 'n' }, 'cancel without an answer'),

  key('trust_all', 'a', { trust = 'n' }, 'trust all files'),
  key('trust_mark', 't', { trust = 'n' }, 'mark the file, or unmark it'),
  key('trust_choose', '<CR>', { trust = 'n' }, 'ask which files to trust'),

  key('waiting_delete', 'dd', { waiting = 'n' }, 'delete the line; on a header the prompt', true),
  key('waiting_send', '<CR>', { waiting = 'n' }, 'send the held prompts'),

  key('mcp_show', '<CR>', { mcp = 'n' }, 'show what the server offers, and its log'),
  key('mcp_start', 'r', { mcp = 'n' }, 'start or restart the server'),
  key('mcp_stop', 'd', { mcp = 'n' }, 'stop the server until you start it'),
  key('mcp_login', 'L', { mcp = 'n' }, 'log in to the server in a browser'),

  key('next_hunk', ']h', { file = 'n' }, 'to the next change; takes a count'),
  key('previous_hunk', '[h', { file = 'n' }, 'to the previous change; takes a count'),
  key(
    'accept_hunk',
    '<LocalLeader>ha',
    { file = 'n' },
    'accept the change here; takes a count',
    true
  ),
  key(
    'reject_hunk',
    '<LocalLeader>hr',
    { file = 'n' },
    'reject the change here; takes a count',
    true
  ),
  key('accept_file', '<LocalLeader>hA', { file = 'n' }, 'accept all changes of the file', true),
  key('reject_file', '<LocalLeader>hR', { file = 'n' }, 'reject all changes of the file', true),

  key('edit_accept', '<LocalLeader>ea', { edit = 'n' }, 'accept the edit'),
  key('edit_reject', '<LocalLeader>er', { edit = 'n' }, 'reject the edit'),
  key('edit_refine', '<LocalLeader>ee', { edit = 'n' }, 'ask for a different edit'),

  key('answer_carry', '<LocalLeader>ec', { answer = 'n', asked = 'n' }, 'continue it in the chat'),
  key('answer_further', '<LocalLeader>ef', { answer = 'n', asked = 'n' }, 'ask a follow-up'),

  key('rewind_both', 'b', { rewind = 'n' }, 'rewind the conversation and the files'),
  key('rewind_conversation', 'c', { rewind = 'n' }, 'rewind only the conversation'),
  key('rewind_files', 'f', { rewind = 'n' }, 'rewind only the files'),

  key('close', 'q', {
    page = 'n',
    trust = 'n',
    waiting = 'n',
    whole = 'n',
    form = 'n',
    job = 'n',
    mcp = 'n',
    rewind = 'n',
    ask = 'n',
    answer = 'n',
    asked = 'n',
  }, 'close it without an answer'),
  key('close_page', '<Esc>', { page = 'n', mcp = 'n', rewind = 'n', ask = 'n' }, 'the same'),
  key('show_keys', 'g?', {
    prompt = 'n',
    transcript = 'n',
    question = 'n',
    whole = 'n',
    form = 'n',
    trust = 'n',
    waiting = 'n',
    job = 'n',
    mcp = 'n',
    rewind = 'n',
    ask = 'n',
    answer = 'n',
    page = 'n',
  }, 'show these keys'),
}

--- The options whose keys allow, accept or start something. A terminal must not send any of these keys as Escape and
--- other keys: leaving insert mode with <Esc> and typing on would press it. tmux joins the two within half a second
--- (escape-time, until 3.5), Neovim itself within 'ttimeoutlen', ssh when they come in one packet.
---@type table<string, true>
M.allowing = {}
for _, option in ipairs({
  'answer_once',
  'question_once',
  'question_session',
  'question_always',
  'question_option',
  'form_send',
  'trust_all',
  'trust_mark',
  'trust_choose',
  'mcp_start',
  'mcp_login',
  'accept_hunk',
  'accept_file',
  'edit_accept',
}) do
  M.allowing[option] = true
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

--- The keys in effect, by option.
---@type table<string, sanderling.config.Key>
M.chosen = {}
for _, row in ipairs(M.rows) do
  M.chosen[row.option] = row.default
end

--- Return the modes of an option's keys in `place`, a letter each.
---@param option string
---@param place sanderling.ui.keys.Place
---@return string
function M.modes_of(option, place)
  for _, row in ipairs(M.rows) do
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
    return not (M.allowing[option] and M.has_escape(lhs))
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

--- Commands that are typed in a place, in addition to its keys.
---@type table<sanderling.ui.keys.Place, [string, string]>
local COMMANDS = { waiting = { ':w', 'apply your changes to the prompts' } }

--- Return the keys of `place` and what they do, for a page.
---@param place sanderling.ui.keys.Place
---@return string[]
function M.lines(place)
  local names, descs, width = {}, {}, 0
  local function add(name, desc)
    names[#names + 1], descs[#descs + 1] = name, desc
    width = math.max(width, vim.api.nvim_strwidth(name))
  end
  if COMMANDS[place] then
    add(unpack(COMMANDS[place]))
  end
  for _, row in ipairs(M.rows) do
    local chosen = M.of(row.option)
    if row.places[place] and #chosen > 0 then
      add(table.concat(vim.tbl_map(typed, chosen), ', '), (row.desc:gsub('|', '')))
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

--- May a key be set in `place`? In the user's own files their maps win.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param modes string
---@param lhs string
---@return boolean
local function is_free(buf, place, modes, lhs)
  local is_users = place == 'file' or place == 'edit' or place == 'asked'
  return not is_users
    or vim.api.nvim_buf_call(buf, function()
      local has_ours = vim.startswith(vim.fn.maparg(lhs, modes, false, true).desc or '', 'Agent: ')
      return has_ours or vim.fn.mapcheck(lhs, modes) == ''
    end)
end

--- Return the first key of an option that is set in `buf`, as the user types it.
---@param buf integer
---@param option string
---@return string?
function M.name_in(buf, option)
  for _, row in ipairs(M.rows) do
    for _, lhs in ipairs(row.option == option and M.of(option) or {}) do
      for _, map in ipairs(vim.api.nvim_buf_get_keymap(buf, 'n')) do
        if map.desc == desc_of(row) and vim.keycode(map.lhs) == vim.keycode(lhs) then
          return typed(lhs)
        end
      end
    end
  end
end

--- The which-key groups of keys that are a leader and two other keys.
---@type table<sanderling.ui.keys.Place, string>
local GROUPS = {
  file = 'agent: changes',
  edit = 'agent: edit, answer',
  answer = 'agent: edit, answer',
  asked = 'agent: edit, answer',
}
---@type table<string, true> by buffer and prefix
local named = {}

--- Name the group of `lhs` for which-key, if that is loaded.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param lhs string
local function name_group(buf, place, lhs)
  local prefix = lhs:match('^(<%a*[Ll]eader>.)[^<]$')
  local which_key = prefix and GROUPS[place] and package.loaded['which-key']
  local id = ('%d %s'):format(buf, prefix or '')
  if type(which_key) == 'table' and which_key.add and not named[id] then
    named[id] = true
    which_key.add({ prefix, group = GROUPS[place], buffer = buf })
  end
end

--- Set the keys of `place` in `buf` for which there is an action. An action gets its key, nil for the <Plug> map.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param actions table<string, fun(lhs?: string): any> by option
function M.set(buf, place, actions)
  for _, row in ipairs(M.rows) do
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
    for _, row in ipairs(M.rows) do
      if row.places[place] and map.desc == desc_of(row) then
        vim.api.nvim_buf_del_keymap(buf, 'n', map.lhs)
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
