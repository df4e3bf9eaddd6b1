--- The table of keys in the chat's buffers and floats. `make format` generates the tables in the help from it.
local M = {}

---@generic T
---@param names string separated by blanks
---@param value T
---@return table<string, T>
local function for_each(names, value)
  local by_name = {}
  for name in names:gmatch('%S+') do
    by_name[name] = value
  end
  return by_name
end

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

--- Keys that a preset sets unless the user sets them.
---@type table<string, table<string, sanderling.config.Key>>
M.presets = {
  vim = {},
  chat = {
    send_insert = { '<CR>', '<C-s>' },
    line_break = { '<M-CR>', '<S-CR>' },
    go = '<C-Space>',
  },
}

-- None shadows a key of Vim's for writing in the prompt.
---@type sanderling.ui.keys.Row[]
M.rows = {
  key('send_normal', { '<CR>', '<C-s>' }, { prompt = 'n', ask = 'n' }, 'send the prompt'),
  key('send_insert', '<C-s>', { prompt = 'i', ask = 'i' }, 'send the prompt, stay in insert mode'),
  key(
    'line_break',
    false,
    { prompt = 'i', ask = 'i' },
    "break the line; `keys.preset = 'chat'` sets it to <S-CR> and <M-CR>"
  ),
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
  key(
    'open',
    '<CR>',
    { transcript = 'n' },
    'open the child session, closed fold or file of the line'
  ),
  key(
    'go_to_file',
    'gf',
    { transcript = 'n' },
    'open the file named here, as `path` or `path:line`, in the last code window'
  ),
  key('places', '<LocalLeader>l', { transcript = 'n' }, 'list the places: |:AgentPlaces|'),
  key('stop_child', '<LocalLeader>s', { transcript = 'n' }, 'stop the child session of the line'),
  key('parent', '<LocalLeader>b', BOTH, 'back to the parent session'),
  key('inspect', 'K', { transcript = 'n' }, 'show the full input and result of the tool call'),
  key(
    'times',
    '<LocalLeader>t',
    { transcript = 'n' },
    'show or hide when each turn began and ended'
  ),
  key('question', '<LocalLeader>a', BOTH, 'to the pending question'),
  key('waiting', '<LocalLeader>w', BOTH, 'show the queued prompts'),
  key('undo_turn', '<LocalLeader>u', BOTH, "undo the agent's changes in its last turn"),
  key('redo_turn', '<LocalLeader>r', BOTH, 'redo the last undo'),
  key('next_session', '<LocalLeader>n', BOTH, 'next session; takes a count'),
  key('previous_session', '<LocalLeader>p', BOTH, 'previous session; takes a count'),

  key('question_once', 'a', { question = 'n' }, 'allow it once'),
  key('question_session', 's', { question = 'n' }, 'allow it for this session'),
  key('question_tree', 'S', { question = 'n' }, 'allow it for parent and all children'),
  key('question_always', 'A', { question = 'n' }, 'allow it always'),
  key('question_deny', 'd', { question = 'n' }, 'deny it'),
  key('question_reason', 'D', { question = 'n' }, 'deny it with a reason'),
  key('question_all', 'x', { question = 'n' }, 'deny it and all that was asked with it'),
  key('question_all_reason', 'X', { question = 'n' }, 'the same, with a reason'),
  key('question_option', 'o', { question = 'n' }, "choose among another agent's answers"),
  key(
    'question_choice',
    { '1', '2', '3', '4', '5', '6', '7', '8', '9' },
    { question = 'n' },
    'give or mark the answer with this number'
  ),
  key(
    'question_send',
    '<CR>',
    { question = 'n' },
    'give the marked answers, or the one at the cursor'
  ),
  key('question_comment', 'c', { question = 'n' }, 'answer in your own words'),
  key('question_back', '<BS>', { question = 'n' }, "back to the model's previous question"),
  key('question_next', '<Tab>', { question = 'n' }, 'next question'),
  key('question_previous', '<S-Tab>', { question = 'n' }, 'previous question'),
  key('question_whole', 'p', { question = 'n' }, 'show the full request in a tab page'),
  key('question_later', { 'q', '<Esc>' }, { question = 'n' }, 'close without an answer'),

  key('answer_focus', '<C-w>a', { anywhere = 'nx' }, 'to the pending question'),
  key(
    'answer_hunk',
    '<C-w>e',
    { anywhere = 'nx' },
    'to the first change of the pending question, and back'
  ),
  key('answer_once', false, { anywhere = 'nix' }, 'allow the pending request once'),
  key('answer_deny', '<M-d>', { anywhere = 'nix' }, 'deny the pending request'),
  key('answer_reason', '<M-r>', { anywhere = 'nix' }, 'deny it with a reason'),

  key(
    'go',
    false,
    { global = 'n' },
    "to the prompt, and back to the code; `keys.preset = 'chat'` sets it to <C-Space>"
  ),

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

  key('pick_rename', '<C-t>', { picker = 'ni' }, 'set the title of the session'),
  key('pick_fork', '<C-o>', { picker = 'ni' }, 'continue in a copy of the session'),
  key('pick_export', '<C-e>', { picker = 'ni' }, 'write the session as Markdown'),
  key('pick_delete', '<C-x>', { picker = 'ni' }, 'delete the session, after a confirmation'),
  key('pick_answer', '<C-y>', { picker = 'ni' }, 'go to the question of the session'),
  key('pick_start', '<C-s>', { picker = 'ni' }, 'start or restart the tool server'),
  key('pick_stop', '<C-d>', { picker = 'ni' }, 'stop the tool server, or what runs in the session'),
  key('pick_login', '<C-l>', { picker = 'ni' }, 'log in to the tool server in a browser'),

  key('rules_open', '<CR>', { rules = 'n' }, 'open the settings file at the rule'),
  key('rules_edit', 'e', { rules = 'n' }, 'edit the rule'),
  key('rules_delete', 'd', { rules = 'n' }, 'delete the rule'),

  key('plugins_check', 'r', { plugins = 'n' }, 'read the plugins again'),
  key('plugins_toggle', 'd', { plugins = 'n' }, 'disable the plugin, or enable it'),
  key('plugins_remove', 'D', { plugins = 'n' }, 'remove the plugin'),

  key('worktrees_diff', '<CR>', { worktrees = 'n' }, 'show what the worktree changed'),
  key('worktrees_apply', 'a', { worktrees = 'n' }, 'make its changes here, and review them'),
  key('worktrees_open', 'o', { worktrees = 'n' }, 'open its session'),
  key('worktrees_remove', 'D', { worktrees = 'n' }, 'remove it, after naming what is lost'),

  key('again_diff', '<CR>', { again = 'n' }, 'compare the file in both results'),
  key(
    'again_apply',
    'a',
    { again = 'n' },
    'replace the first result here by the second, and review it'
  ),
  key('again_remove', 'D', { again = 'n' }, 'remove the second result, after naming what is lost'),

  key(
    'next_hunk',
    ']h',
    { file = 'n', prompt = 'n', transcript = 'n' },
    'to the next change, or the one in question; takes a count'
  ),
  key(
    'previous_hunk',
    '[h',
    { file = 'n', prompt = 'n', transcript = 'n' },
    'to the previous change; takes a count'
  ),
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
  key(
    'reject_hunk_reason',
    '<LocalLeader>hd',
    { file = 'n' },
    'reject the change here with a reason; takes a count'
  ),
  key('accept_file', '<LocalLeader>hA', { file = 'n' }, 'accept all changes of the file', true),
  key('reject_file', '<LocalLeader>hR', { file = 'n' }, 'reject all changes of the file', true),

  key('comment', '<LocalLeader>hc', { file = 'n' }, 'comment on the change here'),
  key('comment_edit', '<LocalLeader>hc', { comment = 'n' }, 'edit the comment, or make one'),
  key('next_comment', ']v', { comment = 'n' }, 'to the next open comment'),
  key('previous_comment', '[v', { comment = 'n' }, 'to the previous one'),

  key('next_step', ']w', { walk = 'n' }, 'to the next change of the walk; takes a count'),
  key('previous_step', '[w', { walk = 'n' }, 'to the previous one; takes a count'),

  key('edit_accept', '<LocalLeader>ea', { edit = 'n' }, 'accept the edit'),
  key('edit_reject', '<LocalLeader>er', { edit = 'n' }, 'reject the edit'),
  key('edit_refine', '<LocalLeader>ee', { edit = 'n' }, 'ask for a different edit'),

  key('answer_carry', '<LocalLeader>ec', { answer = 'n', asked = 'n' }, 'continue it in the chat'),
  key('answer_further', '<LocalLeader>ef', { answer = 'n', asked = 'n' }, 'ask a follow-up'),

  key('rewind_both', 'b', { rewind = 'n' }, 'rewind conversation and files'),
  key('rewind_conversation', 'c', { rewind = 'n' }, 'rewind only the conversation'),
  key('rewind_files', 'f', { rewind = 'n' }, 'rewind only the files'),

  key('blame_open', '<CR>', { blame = 'n' }, 'open the session at the turn that wrote the line'),

  key(
    'close',
    'q',
    for_each(
      'page trust waiting whole form job mcp rules plugins worktrees again rewind blame ask answer asked',
      'n'
    ),
    'close it without an answer'
  ),
  key(
    'close_page',
    '<Esc>',
    for_each('page mcp rules plugins worktrees again rewind blame ask', 'n'),
    'the same'
  ),
  key(
    'show_keys',
    'g?',
    for_each(
      'prompt transcript question whole form trust waiting job mcp rules plugins worktrees again rewind blame ask answer page',
      'n'
    ),
    'show these keys'
  ),
}

--- The options whose keys allow, accept or start something. A terminal must not send any of these keys as Escape and
--- other keys: leaving insert mode with <Esc> and typing on would press it. tmux joins the two within half a second
--- (escape-time, until 3.5), Neovim itself within 'ttimeoutlen', ssh when they come in one packet.
---@type table<string, true>
M.allowing = for_each(
  'answer_once question_once question_session question_tree question_always question_option question_choice '
    .. 'question_send form_send trust_all trust_mark trust_choose mcp_start mcp_login pick_start pick_login plugins_toggle '
    .. 'worktrees_apply again_apply accept_hunk accept_file edit_accept',
  true
)

--- Commands that are typed in a place, in addition to its keys.
---@type table<sanderling.ui.keys.Place, [string, string]>
M.commands = { waiting = { ':w', 'apply your changes to the prompts' } }

--- The which-key groups of keys that are a leader and two other keys.
---@type table<sanderling.ui.keys.Place, string>
M.groups = {
  file = 'agent: changes',
  comment = 'agent: changes',
  edit = 'agent: edit, answer',
  answer = 'agent: edit, answer',
  asked = 'agent: edit, answer',
}

return M
