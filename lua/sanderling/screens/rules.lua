--- :AgentRules: what is allowed and denied in a session, and by what. Rules of the session and stored rules can be edited and deleted
--- there; a rule of the settings is opened in its file.
---
--- The model proposes parts of these rules, so a rule is shown whole and in one line, with each blank and unseen character that could make
--- it look like another rule or like two.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local files = require('sanderling.access.files')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local scratch = require('sanderling.ui.scratch')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local INDENT = '    '
local NAMED = {
  { 'rules_edit', 'edit' },
  { 'rules_delete', 'delete' },
  { 'rules_open', 'open settings' },
  { 'close', 'close' },
}
local ACTIONS = { 'deny', 'ask', 'allow' } -- the first that matches decides
local ns = api.nvim_create_namespace('sanderling_rules')

---@class (exact) sanderling.screens.rules.Page
---@field buf integer
---@field win integer
---@field session_id string
---@field rules table<integer, sanderling.ShownRule> by lnum

---@type sanderling.screens.rules.Page?
local shown

-- text ----------------------------------------------------------------------------------------------------------------

---@param text string
---@return string
local function numbered(text)
  return (text:gsub('.', function(byte)
    return ('<U+%04X>'):format(byte:byte())
  end))
end

--- Return `text` as one line that no other text is shown as.
---@param text string
---@return string
local function exact(text)
  text = text:gsub('^ +', numbered):gsub(' +$', numbered):gsub('[%z\1-\31\127]', numbered)
  text = text:gsub('  +', function(blanks)
    return #blanks < 4 and numbered(blanks) or ('<U+0020 %d times>'):format(#blanks)
  end)
  return unseen.visible(text)
end

---@param rule sanderling.ShownRule
---@return string action
local function action_of(rule)
  return rule.rule:match('^%a+') or ''
end

---@param rule sanderling.ShownRule
---@return string sign
---@return string hl
local function look_of(rule)
  local action = action_of(rule)
  if action == 'allow' then
    return icons.passed, 'AgentBusy'
  elseif action == 'ask' then
    return icons.held, 'AgentWarning'
  end
  return icons.failed, 'AgentError'
end

--- Return the rules, those first that override others.
---@param rules sanderling.ShownRule[]
---@return sanderling.ShownRule[]
local function in_order(rules)
  local ordered = {}
  for _, action in ipairs(ACTIONS) do
    for _, rule in ipairs(rules) do
      ordered[#ordered + 1] = action_of(rule) == action and rule or nil
    end
  end
  return ordered
end

---@param found sanderling.RulesPage
---@return string[] lines
---@return table<integer, sanderling.ShownRule> rules by lnum
---@return sanderling.access.page.Mark[] marks
local function text_of(found)
  local lines, rules, marks = {}, {}, {}
  local function add(line, end_col, hl, rule)
    lines[#lines + 1] = line
    rules[#lines] = rule
    marks[#marks + 1] = { row = #lines - 1, end_col = end_col, hl = hl }
  end
  if (found.problem or '') ~= '' then
    local line = words.plain(found.problem)
    add(line, #line, 'AgentWarning')
  end
  for _, rule in ipairs(in_order(found.rules or {})) do
    local sign, hl = look_of(rule)
    add(('%s %s'):format(sign, exact(rule.rule)), #sign, hl, rule)
    local used = (rule.last_use or '') ~= '' and icons.separator .. 'last used ' .. rule.last_use
    local origin = INDENT .. words.plain(rule.origin .. (used or ''))
    add(origin, #origin, 'AgentStatus', rule)
  end
  if #lines == 0 then
    lines[1] = 'No rules: the mode alone decides.'
  end
  return lines, rules, marks
end

---@param found sanderling.RulesPage
local function fill(found)
  local self = assert(shown)
  local lines, rules, marks = text_of(found)
  local here = api.nvim_win_get_cursor(self.win)
  page.write(self.buf, ns, lines, marks)
  self.rules = rules
  page.fit_height(self.win)
  api.nvim_win_set_cursor(self.win, { math.min(here[1], #lines), 0 })
end

-- keys ----------------------------------------------------------------------------------------------------------------

---@param session sanderling.chat.session.Session
---@param rule sanderling.ShownRule
---@param new string
local function change(session, rule, new)
  session:act({ type = 'change_rule', rule = rule.rule, new = new })
  session:ask({ type = 'list_rules' }, function(found)
    if shown and shown.session_id == session.id then
      fill(found)
    end
  end)
end

---@param rule sanderling.ShownRule
---@return boolean
local function is_changeable(rule)
  return rule.kind == 'always' or rule.kind == 'session'
end

---@param fn fun(rule: sanderling.ShownRule, session: sanderling.chat.session.Session)
---@return fun()
local function with_rule(fn)
  return function()
    local self = assert(shown)
    local rule, session = self.rules[vim.fn.line('.')], live.find(self.session_id)
    if rule and session then
      fn(rule, session)
    end
  end
end

---@param fn fun(rule: sanderling.ShownRule, session: sanderling.chat.session.Session)
---@return fun()
local function with_changeable_rule(fn)
  return with_rule(function(rule, session)
    if is_changeable(rule) then
      fn(rule, session)
    else
      message.tell(('This rule is from %s: change it there.'):format(words.plain(rule.origin)))
    end
  end)
end

local edit = with_changeable_rule(function(rule, session)
  if exact(rule.rule) ~= rule.rule then -- a line break in the default text would end the input
    message.tell('This rule has characters that cannot be edited here. Delete it instead.')
    return
  end
  message.ask({ prompt = 'Rule: ', default = rule.rule }, function(text)
    text = text and words.trimmed(text) or ''
    if text ~= '' and text ~= rule.rule then
      change(session, rule, text)
    end
  end)
end)

local delete = with_changeable_rule(function(rule, session)
  if action_of(rule) == 'allow' then
    change(session, rule, '')
    return
  end
  local prompt = ('%s restricts the agent:'):format(exact(rule.rule))
  message.confirm(prompt, { 'Delete it', 'Keep it' }, function()
    change(session, rule, '')
  end)
end)

--- Open the settings file in which the rule is.
local open_settings = with_rule(function(rule, session)
  local path = rule.file and files.find(rule.file, session.project)
  if not path then
    message.tell(('This rule is in no file here: %s.'):format(words.plain(rule.origin)))
    return
  end
  api.nvim_win_close(assert(shown).win, true) -- it would cover the file
  files.open({ path = path, lnum = rule.line })
end)

---@param session sanderling.chat.session.Session
---@param found sanderling.RulesPage
local function open(session, found)
  local lines = text_of(found)
  local buf, win = page.view('Rules', lines, 'rules', {
    place = 'rules',
    footer = float.naming(NAMED),
    on_close = function()
      shown = nil
    end,
    actions = { rules_edit = edit, rules_delete = delete, rules_open = open_settings },
  })
  -- A wrapped rule does not look like two.
  scratch.set_win_options(win, {
    breakindentopt = 'shift:4',
    showbreak = icons.narrow('continued') .. ' ',
  })
  shown = { buf = buf, win = win, session_id = session.id, rules = {} }
  fill(found)
end

--- Show the rules in effect in a session.
---@param session sanderling.chat.session.Session
function M.show(session)
  session:ask({ type = 'list_rules' }, function(found, is_here)
    if not is_here then
      message.tell('Rules loaded. Run :AgentRules again to show them.')
    elseif shown and shown.session_id == session.id then
      api.nvim_set_current_win(shown.win)
      fill(found)
    else
      if shown then
        api.nvim_buf_delete(shown.buf, { force = true })
      end
      open(session, found)
    end
  end)
end

--- The page covers the transcript, which says why a rule was refused.
bus.subscribe('notice', function(session_id, event)
  if shown and shown.session_id == session_id and event.level == 'warning' then
    message.tell(words.plain(event.text), vim.log.levels.WARN)
  end
end)

bus.subscribe('local_closed', function(session_id)
  if shown and shown.session_id == session_id then
    api.nvim_buf_delete(shown.buf, { force = true })
  end
end)

return M
