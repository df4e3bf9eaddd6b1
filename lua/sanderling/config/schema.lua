--- The table of options: name, default, constraints, description, and whether the host has it. It defines the checks and the host's
--- settings; `make format` generates config/types.lua and the lists in the help from it.

---@class (exact) sanderling.config.Row
---@field name string `chat.size` is the option `size` of the table `chat`
---@field default any
---@field doc string
---@field class? string its type, unless the default shows it
---@field type? string the same, for the help
---@field choices? string[] the valid values
---@field least? number
---@field is_whole? boolean
---@field check? sanderling.config.Check
---@field host? boolean also a key of settings files (src/sanderling/config)
---@field to_host? fun(value: any): any

local checks = require('sanderling.config.checks')

--- The fields of a price in the host (src/sanderling/models/known.py).
local PRICE = {
  input = 0,
  output = 0,
  cache_write = 0,
  cache_read = 0,
  long_prompt_tokens = 0,
  long_input_factor = 1,
  long_output_factor = 1,
}

--- The fields of a rule (src/sanderling/permissions/rules.py).
local RULE = {
  action = '',
  tool = '',
  command = '',
  path = '',
  host = '',
  examples = { matches = {}, does_not_match = {} },
}

local M = {}

M.EFFORTS = { 'default', 'low', 'medium', 'high', 'xhigh', 'max' }

---@type sanderling.config.Row[]
M.rows = {
  {
    name = 'review',
    default = 'inline',
    choices = { 'inline', 'float' },
    doc = 'where a file change is reviewed before it is made: in the file, or in the float',
  },
  {
    name = 'provider',
    default = 'auto',
    doc = 'the provider of the model',
    check = function(value)
      return type(value) == 'string' and value ~= '', "'auto' or the name of a provider"
    end,
    host = true,
  },
  {
    name = 'model',
    default = 'claude-sonnet-5-5',
    doc = "the model's name in the API, alone or as PROVIDER:MODEL",
    check = function(value)
      local expected = value == '' and 'the name of a model' or 'a string'
      return type(value) == 'string' and value ~= '', expected
    end,
    host = true,
  },
  {
    name = 'max_tokens',
    default = 0,
    least = 0,
    is_whole = true,
    doc = "per answer; 0: 32,000, or the model's own limit if lower",
    host = true,
  },
  {
    name = 'base_url',
    default = '',
    doc = "of Claude's API; empty: $ANTHROPIC_BASE_URL or the default",
    host = true,
  },
  {
    name = 'thinking',
    default = true,
    doc = 'request thinking, and summaries of it',
    host = true,
  },
  {
    name = 'small_model',
    default = '',
    doc = 'a cheaper model, as for `model`, that titles sessions; empty: by rule',
    host = true,
  },
  {
    name = 'effort',
    default = 'default',
    choices = M.EFFORTS,
    doc = 'how much the model thinks and writes, of the levels that it takes',
    host = true,
  },
  {
    name = 'mode',
    default = 'ask',
    choices = { 'ask', 'auto', 'plan' },
    doc = 'how far the agent may go in a new session: ask, auto or plan',
    host = true,
  },
  {
    name = 'network',
    default = 'off',
    choices = { 'off', 'proxy', 'on' },
    doc = 'the network of commands when a session opens: off, proxy or on',
    host = true,
  },
  {
    name = 'role',
    default = '',
    doc = 'the role of a new session; empty: none',
    host = true,
  },
  {
    name = 'prewarm',
    default = false,
    doc = "fill the API's cache when a chat opens, before the first prompt",
    host = true,
  },
  {
    name = 'idle_timeout_s',
    default = 120,
    least = 0.001,
    doc = 'seconds without a byte before a request fails',
    host = true,
  },
  {
    name = 'max_calls',
    default = 200,
    least = 0,
    is_whole = true,
    doc = 'model calls per turn before you are asked; 0: no limit',
    host = true,
  },
  {
    name = 'budget_usd',
    default = 0,
    least = 0,
    doc = 'dollars per session before you are asked; 0: no limit',
    host = true,
  },
  {
    name = 'delegate.tokens',
    default = 200000,
    least = 1,
    is_whole = true,
    doc = 'tokens that one child session may use',
    host = true,
  },
  {
    name = 'delegate.tree_tokens',
    default = 2000000,
    least = 0,
    is_whole = true,
    doc = 'tokens of all child sessions of a session before you are asked; 0: no limit',
    host = true,
  },
  {
    name = 'delegate.seconds',
    default = 1800,
    least = 1,
    is_whole = true,
    doc = 'seconds that one child session may run',
    host = true,
  },
  {
    name = 'delegate.calls',
    default = 100,
    least = 1,
    is_whole = true,
    doc = 'model calls that one child session may make',
    host = true,
  },
  {
    name = 'delegate.running',
    default = 4,
    least = 1,
    is_whole = true,
    doc = 'child sessions that run at the same time',
    host = true,
  },
  {
    name = 'prices',
    default = {},
    class = 'table<string, sanderling.config.Price>',
    doc = 'dollars per million tokens, by model; override the known prices',
    check = function(value, look)
      local ok = type(value) == 'table'
      for model, price in pairs(ok and value or {}) do
        ok = ok and type(model) == 'string' and type(price) == 'table'
        if ok then
          look(price, PRICE, ("prices['%s']."):format(model))
        end
      end
      return ok,
        "dollars per million tokens by model, like { ['a-model'] = { input = 2, output = 10 } }"
    end,
    host = true,
    to_host = checks.without_empty,
  },
  {
    name = 'providers',
    default = {},
    class = 'table<string, table>',
    doc = 'providers of models, by name',
    check = checks.tables_by_name(
      "{ here = { wire = 'chat', base_url = 'http://127.0.0.1:8080/v1' } }"
    ),
    host = true,
    to_host = checks.without_empty,
  },
  {
    name = 'auto_compact',
    default = true,
    doc = 'compact the conversation before the context window is full',
    host = true,
  },
  {
    name = 'auto_remember',
    default = true,
    doc = 'propose lines for AGENTS.md after a compaction and at the end',
    host = true,
  },
  {
    name = 'script',
    default = '',
    doc = "the file of the provider 'scripted'",
    host = true,
    to_host = function(path)
      return path ~= '' and vim.fs.normalize(path) or ''
    end,
  },
  {
    name = 'python',
    default = '',
    doc = 'the interpreter of the host; empty: the environment that :AgentInstall built',
  },
  {
    name = 'approval.bell',
    default = false,
    doc = "ring the terminal's bell when a question comes",
  },
  {
    name = 'diagnostics',
    default = 'errors',
    choices = { 'errors', 'warnings', 'off' },
    doc = 'diagnostics after an edit that are reported to the model',
  },
  {
    name = 'permissions',
    default = {},
    class = 'table[]',
    type = 'list',
    doc = 'rules that allow, ask or deny',
    check = function(value, look)
      local ok = type(value) == 'table' and vim.islist(value)
      for i, rule in ipairs(ok and value or {}) do
        ok = ok and type(rule) == 'table' and (next(rule) == nil or not vim.islist(rule))
        if ok then
          local whole = vim.tbl_extend('keep', rule, { action = '' })
          look(whole, RULE, ('permissions[%d].'):format(i))
        end
      end
      return ok, "a list of rules, like { action = 'allow', tool = 'bash', command = 'npm test' }"
    end,
    host = true,
  },
  {
    name = 'tools.set',
    default = 'auto',
    choices = { 'auto', 'all', 'small' },
    doc = "the tools offered; 'small': only read, edit, write, bash and grep, described briefly;"
      .. " 'auto': these if the model's window has less than 16,384 tokens",
    host = true,
  },
  {
    name = 'tools.disabled',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'tools that the model is not offered; * matches any text',
    check = checks.is_list_of_strings,
    host = true,
  },
  {
    name = 'hooks',
    default = {},
    class = 'table<string, table[]>',
    doc = 'commands that run when something happens, by event',
    host = true,
  },
  {
    name = 'plugins.disabled',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'names of plugins that are not used',
    check = checks.is_list_of_strings,
    host = true,
  },
  {
    name = 'skills.disabled',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'names of skills that are not used',
    check = checks.is_list_of_strings,
    host = true,
  },
  {
    name = 'worktree.extras',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'files of the project, ignored by git, that a new worktree gets a copy of',
    check = checks.is_list_of_strings,
    host = true,
  },
  {
    name = 'worktree.links',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = "the same, but linked to the project's own, and read-only",
    check = checks.is_list_of_strings,
    host = true,
  },
  {
    name = 'roles',
    default = {},
    class = 'table<string, table>',
    doc = 'roles: instructions, tools, model, effort and mode together, by name',
    check = checks.tables_by_name("{ reviewer = { tools = { 'read', 'grep' } } }"),
    host = true,
    to_host = function(roles) -- an empty list of tools means none
      return next(roles)
          and vim.tbl_map(function(role)
            return next(role) and role or vim.empty_dict()
          end, roles)
        or nil
    end,
  },
  {
    name = 'web_search.provider',
    default = 'off',
    choices = { 'off', 'api', 'searxng', 'brave', 'kagi', 'gemini' },
    doc = "what the model searches the web with: 'api' is the API's own tool",
    host = true,
  },
  {
    name = 'web_search.url',
    default = '',
    doc = "the search endpoint's address; SearXNG requires it",
    host = true,
  },
  {
    name = 'web_search.api_key',
    default = '',
    doc = "the variable with the search endpoint's key, as in $BRAVE_API_KEY",
    host = true,
  },
  {
    name = 'mcp.servers',
    default = {},
    class = 'table<string, table>',
    doc = 'tool servers (Model Context Protocol), by name',
    check = checks.tables_by_name("{ git = { command = { 'mcp-server-git' } } }"),
    host = true,
    to_host = checks.without_empty,
  },
  {
    name = 'agents',
    default = {},
    class = 'table<string, table>',
    doc = 'external agents (Agent Client Protocol), by name',
    check = checks.tables_by_name("{ mine = { command = { 'my-agent', '--acp' } } }"),
    host = true,
    to_host = checks.without_empty,
  },
  {
    name = 'acp_terminals',
    default = 'sandbox',
    choices = { 'sandbox', 'editor' },
    doc = "where commands of another editor's session run; 'editor' is outside any sandbox",
    host = true,
  },
  {
    name = 'sandbox.min_level',
    default = 'landlock',
    choices = { 'full', 'full-bwrap', 'namespaces', 'seatbelt', 'landlock' },
    doc = 'below this level commands are refused',
    host = true,
  },
  {
    name = 'sandbox.hosts',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = "hosts that commands may reach when the network is 'proxy'",
    check = checks.list_of(function(host)
      return host:find('^[^%s/@]+$') ~= nil
    end, "a list of hosts, like 'pypi.org', '*.example.com' or 'example.com:8080'"),
    host = true,
  },
  {
    name = 'sandbox.read',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'paths outside the project that commands may read',
    check = checks.is_list_of_paths,
    host = true,
    to_host = checks.normalized,
  },
  {
    name = 'sandbox.write',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'paths outside the project that commands may change',
    check = checks.is_list_of_paths,
    host = true,
    to_host = checks.normalized,
  },
  {
    name = 'sandbox.env',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'names of environment variables that commands see',
    check = checks.list_of(function(name)
      return name:find('^[%a_][%w_]*$') ~= nil
    end, 'a list of names of environment variables'),
    host = true,
  },
  {
    name = 'sandbox.credentials',
    default = {},
    class = 'table<string, table>',
    doc = 'secrets that commands can use but not read, by name',
    check = checks.tables_by_name(
      "{ github = { hosts = { 'github.com', 'api.github.com' }, source = 'command' } }"
    ),
    host = true,
    to_host = checks.without_empty,
  },
  {
    name = 'extensions',
    default = {},
    class = 'table<string, table>',
    doc = 'options of extensions, by name; they are loaded when a chat first opens',
    check = checks.are_extensions,
  },
  {
    name = 'icons',
    default = 'unicode',
    choices = { 'unicode', 'ascii' },
    doc = "signs on the screen; 'ascii' if the font lacks them",
  },
  {
    name = 'picker',
    default = 'auto',
    choices = { 'auto', 'snacks', 'mini.pick', 'telescope', 'fzf-lua', 'select' },
    doc = "where you choose sessions, models, prompts and servers; 'auto': in the picker plugin that is"
      .. ' set up, else with vim.ui.select()',
  },
  {
    name = 'follow',
    default = 'off',
    choices = { 'off', 'show', 'jump' },
    doc = "show the file that the agent reads or changes; 'jump': also where you are",
  },
  {
    name = 'ai_comments',
    default = 'command',
    choices = { 'command', 'write' },
    doc = 'when comments that end in AI! or AI? are sent: with :AgentTodo!, or also those that you have typed when'
      .. ' you write their file',
  },
  {
    name = 'answer',
    default = 'chat',
    choices = { 'chat', 'float', 'lines' },
    doc = 'where :AgentAsk answers: in the chat, in a float at the code, or in lines below it',
  },
  {
    name = 'commit_trace',
    default = 'off',
    choices = { 'off', 'trailer', 'note' },
    doc = 'how a commit with a message of :AgentCommit records which lines the agent wrote',
  },
  {
    name = 'chat.position',
    default = 'right',
    choices = { 'right', 'left', 'top', 'bottom', 'float', 'tab', 'current' },
    doc = 'where the chat opens',
  },
  {
    name = 'chat.size',
    default = 0.42,
    least = 0.05,
    doc = 'below 1: a share of the editor; from 1 on: columns or rows',
  },
  {
    name = 'chat.prompt_height',
    default = 12,
    least = 1,
    is_whole = true,
    doc = 'rows to which the prompt window can grow',
  },
  {
    name = 'chat.start_insert',
    default = true,
    doc = 'enter an empty prompt in insert mode',
  },
  {
    name = 'chat.markdown',
    default = 'own',
    choices = { 'own', 'treesitter' },
    doc = "who renders answers: Sanderling, or Neovim's highlighter and a plugin for Markdown",
  },
  {
    name = 'keys.preset',
    default = 'vim',
    choices = { 'vim', 'chat' },
    doc = 'the keys for writing: as in Vim, or <CR> sends in insert mode as well',
  },
}

local keys = require('sanderling.config.keys')
for _, key in ipairs(keys.rows) do
  M.rows[#M.rows + 1] = {
    name = 'keys.' .. key.option,
    default = key.default,
    class = 'sanderling.config.Key',
    doc = key.desc,
    check = keys.allowing[key.option] and checks.is_key_without_escape or checks.is_key,
  }
end

--- Checks of options for which the default's type is not enough.
---@type table<string, sanderling.config.Check>
M.checks = {
  ['permissions[].action'] = checks.one_of({ 'allow', 'ask', 'deny' }),
  ['permissions[].tool'] = function(value)
    local tools = 'bash read edit write code_refactor web_fetch web_search delegate debug *'
    local is_known, words = checks.one_of(vim.split(tools, ' '))(value)
    local is_outside = type(value) == 'string' and value:find('__', 1, true) ~= nil
    return is_known or is_outside, words .. ", or like 'mcp__server__*'"
  end,
  ['permissions[].examples.matches'] = checks.is_list_of_strings,
  ['permissions[].examples.does_not_match'] = checks.is_list_of_strings,
}

---@type sanderling.config.Options
M.defaults = {}

for _, row in ipairs(M.rows) do
  M.checks[row.name] = row.check
    or row.choices and checks.one_of(row.choices)
    or row.least and checks.at_least(row.least, row.is_whole)
    or nil
  local group, name = row.name:match('^(.*)%.(.*)$')
  local defaults = M.defaults
  if group then
    defaults[group] = defaults[group] or {}
    defaults = defaults[group]
  end
  defaults[name or row.name] = row.default
end

---@param name string
---@return string[]
function M.choices(name)
  for _, row in ipairs(M.rows) do
    if row.name == name then
      return assert(row.choices)
    end
  end
  error(name)
end

return M
