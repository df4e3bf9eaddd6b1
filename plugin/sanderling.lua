-- Names only: nothing is required, and no process starts, until one of these is used.
if vim.g.loaded_sanderling then
  return
end
vim.g.loaded_sanderling = true

--- As with Vim's own, `|` ends a command, if that takes no text.
---@param name string
---@param run function
---@param opts table
local function command(name, run, opts)
  opts.bar = opts.bar or not opts.nargs
  vim.api.nvim_create_user_command(name, run, opts)
end

if vim.fn.has('nvim-0.11') == 0 then
  for _, name in ipairs({
    'AgentChat',
    'AgentAsk',
    'AgentRun',
    'AgentNet',
    'AgentSandbox',
    'AgentMode',
    'AgentApprovals',
    'AgentApprove',
    'AgentDeny',
    'AgentTodo',
    'AgentTerminal',
    'AgentStop',
    'AgentNew',
    'AgentSessions',
    'AgentResume',
    'AgentFork',
    'AgentRename',
    'AgentExport',
    'AgentClear',
    'AgentClose',
    'AgentSteer',
    'AgentQueue',
    'AgentInstall',
    'AgentLog',
    'AgentHealth',
    'AgentHelp',
    'AgentCompact',
    'AgentModel',
    'AgentUsage',
    'AgentSettings',
    'AgentTrust',
    'AgentLogin',
    'AgentLogout',
    'AgentReview',
    'AgentRetry',
  }) do
    command(name, function()
      vim.api.nvim_echo(
        { { 'Sanderling needs Neovim 0.11 or newer: please update Neovim.', 'ErrorMsg' } },
        true,
        {}
      )
    end, { nargs = '*', range = true, bang = true, desc = 'Agent: needs Neovim 0.11' })
  end
  return
end

--- What goes wrong in a command is one line, not a traceback.
local function guarded(fn)
  return function(cmd)
    local ok, err = pcall(fn, cmd)
    if not ok then
      require('sanderling.ui.message').tell_error(cmd.name, err)
    end
  end
end

--- Complete the words that `list` gives.
local function words(list)
  return function(lead)
    return require('sanderling.ui.words').beginning_with(list(), lead)
  end
end

command(
  'AgentChat',
  guarded(function(cmd)
    require('sanderling').toggle({ position = cmd.args ~= '' and cmd.args or nil })
  end),
  {
    nargs = '?',
    bar = true,
    desc = 'Agent: show or hide the chat',
    complete = words(function()
      return require('sanderling.config').POSITIONS
    end),
  }
)

command(
  'AgentAsk',
  guarded(function(cmd)
    require('sanderling').ask(
      cmd.args,
      { range = cmd.range > 0 and { cmd.line1, cmd.line2 } or nil }
    )
  end),
  { nargs = '+', range = true, desc = 'Agent: ask, about the selected lines if there are any' }
)

command(
  'AgentRun',
  guarded(function(cmd)
    require('sanderling').run(cmd.args)
  end),
  {
    nargs = '+',
    desc = 'Agent: run a command in the sandbox',
    complete = function(...)
      return require('sanderling.session.sandbox').complete_command(...)
    end,
  }
)

command(
  'AgentNet',
  guarded(function(cmd)
    require('sanderling.commands').chat.set_or_tell_network(cmd.args)
  end),
  {
    nargs = '?',
    bar = true,
    desc = 'Agent: show or set the network of commands',
    complete = function(...)
      return require('sanderling.session.sandbox').complete_network(...)
    end,
  }
)

command(
  'AgentSandbox',
  guarded(function(cmd)
    require('sanderling').sandbox(cmd.args ~= '' and cmd.args or nil)
  end),
  {
    nargs = '?',
    bar = true,
    desc = 'Agent: show the sandbox, switch it off or on',
    complete = function(...)
      return require('sanderling.session.sandbox').complete_action(...)
    end,
  }
)

command(
  'AgentMode',
  guarded(function(cmd)
    require('sanderling.commands').chat.set_or_tell_mode(cmd.args)
  end),
  {
    nargs = '?',
    bar = true,
    desc = 'Agent: show or set the mode',
    complete = words(function()
      return require('sanderling.config').MODES
    end),
  }
)

command(
  'AgentApprovals',
  guarded(function()
    require('sanderling.review').focus()
  end),
  { desc = 'Agent: go to the question that waits for an answer' }
)

command(
  'AgentApprove',
  guarded(function(cmd)
    require('sanderling.review').approve(cmd.args ~= '' and cmd.args or nil)
  end),
  {
    nargs = '?',
    bar = true,
    desc = 'Agent: allow what is asked: once, for the session, or always',
    complete = words(function()
      return require('sanderling.review').CHOICES
    end),
  }
)

command(
  'AgentDeny',
  guarded(function(cmd)
    require('sanderling.review').deny(cmd.args, cmd.bang)
  end),
  {
    nargs = '*',
    bang = true,
    desc = 'Agent: deny what is asked, for a reason that the model reads; with !, only this one',
  }
)

command(
  'AgentTodo',
  guarded(function()
    require('sanderling.commands').chat.todo()
  end),
  { desc = 'Agent: show what the model means to do' }
)

command(
  'AgentTerminal',
  guarded(function(cmd)
    require('sanderling.screens.jobs')[cmd.bang and 'stop' or 'show'](cmd.args)
  end),
  {
    nargs = '?',
    bang = true,
    desc = 'Agent: show a job of the model; with ! stop it',
    complete = function(...)
      return require('sanderling.screens.jobs').complete(...)
    end,
  }
)

command(
  'AgentStop',
  guarded(function()
    require('sanderling').stop()
  end),
  { desc = 'Agent: stop the turn, or the command' }
)

command(
  'AgentNew',
  guarded(function()
    require('sanderling').new()
  end),
  { desc = 'Agent: begin a conversation beside those that are open' }
)

command(
  'AgentSessions',
  guarded(function(cmd)
    require('sanderling').sessions(cmd.args, { all = cmd.bang })
  end),
  {
    nargs = '*',
    bang = true,
    desc = "Agent: the project's conversations, in which a text was said; with ! of all projects",
  }
)

command(
  'AgentResume',
  guarded(function(cmd)
    require('sanderling').resume(cmd.args)
  end),
  {
    nargs = '?',
    desc = 'Agent: go on with a conversation, the newest unless one is named',
    complete = function(lead)
      return require('sanderling.session.stored').complete(lead)
    end,
  }
)

command(
  'AgentFork',
  guarded(function()
    require('sanderling').fork()
  end),
  { desc = 'Agent: go on with a copy of the conversation, up to the message under the cursor' }
)

command(
  'AgentRename',
  guarded(function(cmd)
    require('sanderling').rename(cmd.args)
  end),
  { nargs = '*', desc = 'Agent: give the conversation a title' }
)

command(
  'AgentExport',
  guarded(function(cmd)
    require('sanderling').export(cmd.args)
  end),
  { nargs = '?', complete = 'file', desc = 'Agent: write the conversation as Markdown' }
)

command(
  'AgentClear',
  guarded(function()
    require('sanderling').clear()
  end),
  { desc = 'Agent: begin a new session in the windows of this one' }
)

command(
  'AgentClose',
  guarded(function()
    require('sanderling').close()
  end),
  { desc = 'Agent: close the conversation, which stays on disk' }
)

command(
  'AgentSteer',
  guarded(function(cmd)
    require('sanderling').steer(cmd.args)
  end),
  { nargs = '+', desc = 'Agent: tell the model something in the middle of its turn' }
)

command(
  'AgentQueue',
  guarded(function()
    require('sanderling.commands').chat.queue()
  end),
  { desc = 'Agent: show the prompts that wait' }
)

command(
  'AgentInstall',
  guarded(function()
    require('sanderling.host.install').run()
  end),
  { desc = 'Agent: build the Python environment' }
)

command(
  'AgentLog',
  guarded(function()
    require('sanderling.host').open_log()
  end),
  { desc = "Agent: open the host's log" }
)

command(
  'AgentHealth',
  guarded(function(cmd)
    require('sanderling.health').show({ ask_api = cmd.bang })
  end),
  { bang = true, desc = 'Agent: check the installation; with ! ask the API and the keychain too' }
)

--- A command that the prompt knows as well: `/model` is :AgentModel.
---@param name string of the slash command
---@param desc string
---@param opts? table
local function slash_command(name, desc, opts)
  local function run(cmd)
    require('sanderling.commands').call(name, cmd.bang and 'undo' or cmd.args)
  end
  opts = opts or {}
  opts.desc = 'Agent: ' .. desc
  opts.complete = opts.nargs
    and function(lead)
      return require('sanderling.commands').complete(name, lead)
    end
  command('Agent' .. name:gsub('^%l', string.upper), guarded(run), opts)
end

slash_command('compact', 'put a summary in place of what the model has read; with ! undo that', {
  nargs = '*',
  bang = true,
})
slash_command('model', 'choose the model', { nargs = '?' })
slash_command('usage', 'show tokens and dollars')
slash_command('settings', 'show the settings in force')
slash_command('trust', "read the project's own instructions, and trust them")
slash_command('login', 'store an API key in the keychain', { nargs = '*' }) -- to refuse it without showing it
slash_command('logout', 'remove the API key from the keychain')
slash_command('review', 'let the model review the changes, or what is named', { nargs = '*' })

command(
  'AgentHelp',
  guarded(function()
    require('sanderling.commands').show_help(require('sanderling.session.live').current_id())
  end),
  { desc = 'Agent: show the slash commands' }
)

command(
  'AgentRetry',
  guarded(function()
    require('sanderling.commands').chat.retry()
  end),
  { desc = 'Agent: make the request again that waits for its retry' }
)

--- vim.keymap.set() would do the same, but loading it is a third of what all of this file costs.
---@param modes string a letter each
---@param rhs string|fun()
local function map(modes, name, rhs, desc)
  local callback = type(rhs) == 'function' and rhs or nil
  local opts = { noremap = true, desc = 'Agent: ' .. desc, callback = callback }
  for mode in modes:gmatch('.') do
    vim.api.nvim_set_keymap(mode, ('<Plug>(Agent%s)'):format(name), callback and '' or rhs, opts)
  end
end

--- Go `direction` times as many sessions on as the count says.
local function switch(direction)
  return function()
    require('sanderling').switch(direction * vim.v.count1)
  end
end

map('n', 'Chat', '<Cmd>AgentChat<CR>', 'show or hide the chat')
map('n', 'Stop', '<Cmd>AgentStop<CR>', 'stop the turn')
map('n', 'New', '<Cmd>AgentNew<CR>', 'begin a conversation')
map('n', 'Sessions', '<Cmd>AgentSessions<CR>', 'conversations')
map('n', 'Resume', '<Cmd>AgentResume<CR>', 'the last conversation')
map('n', 'Fork', '<Cmd>AgentFork<CR>', 'a copy of the conversation')
map('n', 'Steer', ':AgentSteer ', 'tell the model meanwhile')
map('n', 'NextSession', switch(1), 'next conversation')
map('n', 'PreviousSession', switch(-1), 'previous conversation')
map('nx', 'Ask', ':AgentAsk ', 'ask')
map('n', 'Model', '<Cmd>AgentModel<CR>', 'choose the model')
map('n', 'Usage', '<Cmd>AgentUsage<CR>', 'show tokens and dollars')
map('n', 'Retry', '<Cmd>AgentRetry<CR>', 'make the request again now')
map('n', 'Run', ':AgentRun ', 'run a command in the sandbox')
map('nxit', 'Approvals', '<Cmd>AgentApprovals<CR>', 'go to the question')
map('nxit', 'Approve', '<Cmd>AgentApprove once<CR>', 'allow what is asked once')
map('nxit', 'ApproveSession', '<Cmd>AgentApprove session<CR>', 'allow it for the session')
map('nxit', 'ApproveAlways', '<Cmd>AgentApprove always<CR>', 'allow it always')
map('nxit', 'Deny', '<Cmd>AgentDeny<CR>', 'deny what is asked')

for name, link in pairs({
  AgentUser = 'Title',
  AgentAssistant = 'Special',
  AgentThinking = 'Comment',
  AgentContext = 'Directory',
  AgentCommand = 'Statement',
  AgentTool = 'Function',
  AgentDiffAdd = 'DiffAdd',
  AgentDiffDelete = 'DiffDelete',
  AgentDiffHunk = 'Special',
  AgentDiffHeader = 'Comment',
  AgentApproval = 'NormalFloat',
  AgentApprovalBorder = 'DiagnosticWarn',
  AgentApprovalTitle = 'Title',
  AgentApprovalKey = 'Special',
  AgentTodoActive = 'Statement',
  AgentTodoDone = 'Comment',
  AgentNotice = 'DiagnosticInfo',
  AgentWarning = 'DiagnosticWarn',
  AgentError = 'DiagnosticError',
  AgentRemedy = 'DiagnosticHint',
  AgentPlaceholder = 'NonText',
  AgentMode = 'ModeMsg',
  AgentModeAuto = 'DiagnosticWarn',
  AgentModePlan = 'DiagnosticInfo',
  AgentStatus = 'Comment',
  AgentBusy = 'DiagnosticOk',
}) do
  vim.api.nvim_set_hl(0, name, { link = link, default = true })
end
vim.api.nvim_set_hl(0, 'AgentOutput', { default = true }) -- as all text
vim.api.nvim_set_hl(0, 'AgentTodo', { default = true })

-- A session file knows the windows of a chat as empty ones with its buffers' names (unless 'sessionoptions' lacks "blank").
vim.api.nvim_create_autocmd('SessionLoadPost', {
  group = vim.api.nvim_create_augroup('sanderling_session', {}),
  desc = 'Agent: leave no empty windows of a chat that was',
  callback = function()
    for _, buf in ipairs(vim.api.nvim_list_bufs()) do
      local name = vim.api.nvim_buf_get_name(buf)
      local is_ours = name:find('%[Sanderling[^/]*%]$') or name:find('^sanderling://%d+/%a+$')
      if is_ours and vim.bo[buf].filetype == '' then
        vim.api.nvim_buf_delete(buf, { force = true })
      end
    end
  end,
})
