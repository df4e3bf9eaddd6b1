--- The table of verbs: everything the user can tell the agent to do.
---
--- Each row defines `:Agent {verb}`, a command of its own if it is in daily use, a slash command, a word of the chat's
--- command line and a <Plug> map. `make format` generates plugin/sanderling.lua and the lists in the help from it.
local lazy = require('sanderling.ui.lazy')

local actions = lazy('sanderling.verbs.actions')
local calls = require('sanderling.verbs.calls')
local chat = require('sanderling.chat')
local config = require('sanderling.config')
local config_file = lazy('sanderling.screens.config_file')
local guess = lazy('sanderling.config.guess')
local health = lazy('sanderling.health')
local host = require('sanderling.host')
local install = require('sanderling.host.install')
local jobs = lazy('sanderling.screens.jobs')
local live = require('sanderling.session.live')
local login = lazy('sanderling.screens.login')
local mcp = lazy('sanderling.screens.mcp')
local plugins = lazy('sanderling.screens.plugins')
local message = require('sanderling.ui.message')
local approval = lazy('sanderling.approval')
local comments = lazy('sanderling.comments')
local rewind = lazy('sanderling.screens.rewind')
local rules = lazy('sanderling.screens.rules')
local skills = lazy('sanderling.screens.skills')
local sandbox = require('sanderling.session.sandbox')
local sessions = lazy('sanderling.screens.sessions')
local stored = require('sanderling.session.stored')
local todo = lazy('sanderling.inline.todo')
local trust = lazy('sanderling.screens.trust')
local words = require('sanderling.ui.words')
local worktrees = lazy('sanderling.screens.worktrees')

local again = lazy('sanderling.screens.again')
local agents = lazy('sanderling.screens.agents')

local always, unless_empty = calls.always, calls.unless_empty
local with_args, with_session = calls.with_args, calls.with_session

local comment_words = { 'send', 'list', 'clear' }

--- Do what `:AgentReview` does with comments. A misspelled word is an error, unless the project has a file of that name.
---@param what string
---@return boolean is_done false: the model is asked to review `what`
local function review_comments(what)
  what = words.trimmed(what)
  if vim.list_contains(comment_words, what) then
    comments[what]()
    return true
  end
  local is_misspelled = vim.iter(comment_words):any(function(word)
    local _, distance = guess.nearest(what:lower(), { [word] = true })
    return distance <= 1
  end) and not vim.uv.fs_stat(vim.fs.joinpath(stored.project_here(), what))
  if is_misspelled then
    local text = '%s If it is a branch: :AgentReview branch %s'
    error(text:format(words.not_one_of('AgentReview', comment_words, what), what), 0)
  end
  return false
end

---@param type string
local function showing_report(type)
  return function(call)
    actions.show_report(call.session, type)
  end
end

---@param choice 'session'|'always'
local function allowing(choice)
  return function()
    approval.allow(choice)
  end
end

---@param direction -1|1
local function switching(direction)
  return function()
    chat.switch(direction * vim.v.count1)
  end
end

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'chat',
    desc = 'show or hide the chat',
    forms = 'ex',
    has_command = true,
    args = '? position or agent',
    bar = true,
    complete = agents.complete,
    run = agents.chat,
  },
  {
    name = 'help',
    desc = 'show these commands',
    forms = 'ex slash',
    run = function(call)
      actions.show_help(call.session and call.session.id or live.current_id())
    end,
  },
  {
    name = 'new',
    desc = 'open another session',
    forms = 'ex slash',
    has_command = true,
    args = '* worktree and branch',
    words = always({ 'worktree' }),
    run = function(call)
      actions.new_session(call.args)
    end,
  },
  {
    name = 'clear',
    desc = 'start a new session in these windows',
    forms = 'ex slash word',
    run = chat.clear,
  },
  {
    name = 'resume',
    desc = 'resume an earlier session, by default the newest',
    forms = 'ex slash',
    has_command = true,
    args = '? id',
    words = function()
      return stored.ids('')
    end,
    complete = stored.complete,
    run = with_args(sessions.resume),
  },
  {
    name = 'sessions',
    desc = "choose one of the project's sessions",
    forms = 'ex slash',
    has_command = true,
    args = '* text',
    complete = stored.complete_title,
    bang = 'of all projects',
    run = function(call)
      sessions.pick(call.args, call.bang or false)
    end,
  },
  {
    name = 'fork',
    desc = 'continue in a copy of this session',
    forms = 'ex slash',
    run = sessions.fork,
  },
  {
    name = 'rename',
    desc = 'give the session a title',
    forms = 'ex slash',
    args = '* title',
    complete = stored.complete_own_title,
    run = with_args(sessions.rename),
  },
  {
    name = 'export',
    desc = 'write the session as Markdown',
    forms = 'ex slash',
    args = '? path',
    complete = 'file',
    run = with_args(sessions.export),
  },
  {
    name = 'compact',
    desc = 'summarize the conversation to free context',
    forms = 'ex slash',
    has_command = true,
    args = '* focus',
    bang = 'undo it',
    undo = 'undo',
    words = always({ 'undo' }),
    on_session = true,
    only_looks = true,
    run = actions.compact,
  },
  {
    name = 'remember',
    desc = 'propose lines for AGENTS.md from what you corrected',
    forms = 'ex slash',
    has_command = true,
    args = '? id',
    complete = stored.complete,
    on_session = true,
    run_here = actions.remember_closed,
    only_looks = true,
    run = actions.remember,
  },
  calls.on_turn('undo', "undo the agent's changes in its last turn", rewind, true),
  calls.on_turn('redo', 'redo the last undo', rewind, true),
  {
    name = 'again',
    desc = 'repeat the last prompt in a private copy',
    forms = 'ex slash',
    has_command = true,
    args = '? model',
    words = actions.models_of,
    complete = actions.complete_model,
    bang = 'compare both results',
    undo = 'compare',
    page = 'sanderling-worktrees',
    on_session = true,
    run = again.run,
  },
  calls.on_turn('rewind', 'go back to before a prompt: conversation, files or both', rewind),
  {
    name = 'model',
    desc = 'choose the model',
    forms = 'ex slash',
    has_command = true,
    args = '? name',
    words = actions.models_of,
    complete = actions.complete_model,
    bang = 'ask all providers for their models',
    undo = 'all',
    on_session = true,
    run = actions.set_or_choose_model,
  },
  {
    name = 'effort',
    desc = 'choose how much the model thinks and writes',
    forms = 'ex slash',
    has_command = true,
    args = '* level',
    words = always(config.EFFORTS),
    complete = actions.complete_effort,
    on_session = true,
    run = actions.set_or_choose_effort,
  },
  {
    name = 'role',
    desc = 'give the agent a role, or end it',
    forms = 'ex slash',
    has_command = true,
    args = '? name',
    complete = actions.complete_role,
    on_session = true,
    run = actions.set_or_choose_role,
  },
  {
    name = 'option',
    desc = "set an external agent's option",
    forms = 'ex slash',
    args = '* option and value',
    complete = agents.complete_option,
    on_session = true,
    run = agents.set_or_choose_option,
  },
  {
    name = 'agents',
    desc = 'choose an external agent to chat with',
    forms = 'ex',
    run = agents.choose,
  },
  {
    name = 'provider_test',
    desc = 'test a provider',
    forms = 'ex',
    args = '? provider',
    complete = actions.complete_provider,
    run = with_args(actions.test_provider),
  },
  {
    name = 'mode',
    desc = 'show or set the permission mode',
    forms = 'ex slash word',
    has_command = true,
    args = '? mode',
    words = always(config.MODES),
    is_word = true,
    run = with_args(chat.set_or_tell_mode),
  },
  {
    name = 'net',
    desc = 'show or set network access for commands',
    forms = 'ex slash word',
    has_command = true,
    args = '? mode',
    words = always(sandbox.NETWORK_MODES),
    is_word = true,
    run = with_args(chat.set_or_tell_network),
  },
  {
    name = 'sandbox',
    desc = 'show the sandbox, switch it off or on',
    forms = 'ex slash word',
    args = '? action',
    words = always(sandbox.ACTIONS),
    is_word = true,
    run = function(call)
      chat.sandbox(unless_empty(call.args))
    end,
  },
  {
    name = 'times',
    desc = 'show or hide when each turn began and ended',
    forms = 'ex',
    run = chat.times,
  },
  {
    name = 'todo',
    desc = "show the model's to-do list",
    forms = 'ex slash word',
    has_command = true,
    bang = 'send the comments that end in AI! or AI?',
    run = function(call)
      if call.bang then
        todo.send()
      else
        chat.todo()
      end
    end,
  },
  {
    name = 'usage',
    desc = 'show tokens and dollars',
    forms = 'ex slash',
    on_session = true,
    only_looks = true,
    run = showing_report('show_usage'),
  },
  {
    name = 'cost',
    desc = 'same as /usage',
    forms = 'slash',
    only_looks = true,
    run = showing_report('show_usage'),
  },
  {
    name = 'settings',
    desc = 'show the settings in effect',
    forms = 'ex slash',
    on_session = true,
    only_looks = true,
    run = showing_report('show_settings'),
  },
  {
    name = 'config',
    desc = "open your settings file, or the project's",
    forms = 'ex slash',
    args = '? file',
    words = always(config.FILES),
    is_word = true,
    run = function(call)
      config_file.open(call.args)
    end,
  },
  {
    name = 'trust',
    desc = "read and trust the project's files",
    forms = 'ex slash',
    on_session = true,
    has_own_page = true,
    run = with_session(trust.ask),
  },
  {
    name = 'rules',
    desc = 'show what is allowed and denied, and by what',
    forms = 'ex slash',
    has_command = true,
    on_session = true,
    has_own_page = true,
    run = with_session(rules.show),
  },
  {
    name = 'skills',
    desc = 'choose a skill for the prompt',
    forms = 'ex slash',
    on_session = true,
    run = with_session(skills.choose),
  },
  {
    name = 'mcp',
    desc = 'show the MCP servers, their tools and logs',
    forms = 'ex slash',
    on_session = true,
    has_own_page = true,
    run = with_session(mcp.show),
  },
  {
    name = 'plugins',
    desc = 'show the plugins, their skills and servers',
    forms = 'ex slash',
    has_command = true,
    has_own_page = true,
    run = function()
      plugins.show()
    end,
  },
  {
    name = 'worktrees',
    desc = "show the worktrees of the project's sessions",
    forms = 'ex slash',
    has_command = true,
    has_own_page = true,
    run = function()
      worktrees.show()
    end,
  },
  {
    name = 'login',
    desc = 'store an API key in the keychain',
    forms = 'ex slash',
    args = '? provider',
    words = login.providers,
    fits = login.is_provider,
    on_session = true,
    is_unkept = true,
    refusal = 'Do not type the key on this line: /login alone asks for it.',
    run = login.login,
  },
  {
    name = 'logout',
    desc = 'remove the key from the keychain',
    forms = 'ex slash',
    args = '? provider',
    words = login.providers,
    on_session = true,
    run = login.logout,
  },
  {
    name = 'close',
    desc = 'close the session; its log stays',
    forms = 'ex slash',
    bang = 'without a proposal for AGENTS.md',
    run = function(call)
      chat.close(call.bang)
    end,
  },
  {
    name = 'go',
    desc = "go to the chat's prompt, and back to the code",
    forms = 'ex',
    plug = 'n',
    run = function()
      chat.go()
    end,
  },
  {
    name = 'hide',
    desc = 'hide the chat',
    forms = 'slash:exit word:quit',
    run = function()
      chat.hide()
    end,
  },
  { -- the host turns it into a prompt
    name = 'review',
    desc = 'have the model review the changes, or what you describe',
    forms = 'ex slash',
    has_command = true,
    args = '* what',
    words = always(comment_words),
    on_session = true,
    run_here = review_comments,
  },
  {
    name = 'send',
    desc = 'send the prompt',
    forms = 'word',
    run = function(call)
      call.session:send_prompt(false)
    end,
  },
  {
    name = 'write',
    desc = 'show the key that sends the prompt',
    forms = 'word:w',
    run = function()
      local key = config.key_name(config.options.keys.send_normal, ':send')
      message.tell(('The prompt has no file: %s sends it.'):format(key))
    end,
  },
  {
    name = 'steer',
    desc = 'send text to the model during its turn',
    forms = 'ex',
    args = '+ text',
    run = with_args(chat.steer),
  },
  {
    name = 'stop',
    desc = 'stop the turn, or the command',
    forms = 'ex word',
    has_command = true,
    run = chat.stop,
  },
  { name = 'queue', desc = 'show the queued prompts', forms = 'ex', run = chat.queue },
  {
    name = 'retry',
    desc = 'retry the request now',
    forms = 'ex',
    run = chat.retry,
  },
  {
    name = 'run',
    desc = 'run a command in the sandbox',
    forms = 'ex word',
    args = '+ command',
    complete = sandbox.complete_command,
    run = with_args(chat.run),
  },
  {
    name = 'terminal',
    desc = "show one of the model's jobs",
    forms = 'ex word',
    args = '? id',
    bang = 'stop it',
    complete = jobs.complete,
    run = function(call)
      jobs[call.bang and 'stop' or 'show'](call.args)
    end,
  },
  {
    name = 'reveal',
    desc = "show the model the whole screen of a job's terminal",
    forms = 'ex',
    args = '? id',
    complete = jobs.complete,
    run = function(call)
      jobs.reveal(call.args)
    end,
  },
  {
    name = 'question',
    desc = 'go to the pending question',
    forms = 'ex',
    plug = 'nxit',
    run = approval.focus,
  },
  {
    name = 'allow',
    desc = 'allow the request once, for the session, or always',
    forms = 'ex',
    has_command = true,
    plug = 'nxit',
    args = '? scope',
    words = approval.choices,
    is_word = true,
    run = function(call)
      approval.allow(unless_empty(call.args))
    end,
  },
  {
    name = 'allow_session',
    desc = 'allow for the session',
    plug = 'nxit',
    run = allowing('session'),
  },
  {
    name = 'allow_always',
    desc = 'allow always',
    plug = 'nxit',
    run = allowing('always'),
  },
  {
    name = 'deny',
    desc = 'deny the request, with a reason for the model',
    forms = 'ex',
    has_command = true,
    plug = 'nxit',
    args = '* reason',
    bang = 'all of the same message',
    run = function(call)
      approval.deny(call.args, call.bang)
    end,
  },
  { name = 'next_session', desc = 'next session; takes a count', plug = 'n', run = switching(1) },
  {
    name = 'previous_session',
    desc = 'previous session; takes a count',
    plug = 'n',
    run = switching(-1),
  },
  {
    name = 'install',
    desc = 'build the Python environment',
    forms = 'ex',
    has_command = true,
    run = install.run,
  },
  { name = 'log', desc = "open the host's log", forms = 'ex word', run = host.open_log },
  {
    name = 'health',
    desc = 'check the installation',
    forms = 'ex',
    bang = 'check the API and the keychain, too',
    run = function(call)
      health.show({ ask_api = call.bang })
    end,
  },
  {
    name = 'manual',
    desc = 'open the help',
    forms = 'word:help',
    args = '? topic',
    complete = 'help',
    run = function(call)
      actions.open_help(unless_empty(call.args) or 'sanderling')
    end,
  },
}
