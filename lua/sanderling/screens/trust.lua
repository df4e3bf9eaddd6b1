--- :Agent trust: shows in a tab page, in full, the project's files that would instruct the model or Sanderling, and asks whether to trust
--- them. Trust applies to the bytes shown, by their SHA-256.
local M = {}

local api = vim.api
local attention = require('sanderling.ui.attention')
local bus = require('sanderling.host.bus')
local files = require('sanderling.access.files')
local page = require('sanderling.access.page')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local trust_page = require('sanderling.screens.trust_page')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local SETTINGS = '.sanderling.toml'
local NAMED_PATHS = 3
local KEYS = 'a: trust all   t: mark file   <CR>: answer   q: close'

local ns = api.nvim_create_namespace('sanderling_trust') -- of the watched keys

---@type sanderling.screens.trust.View?
local view
---@class (exact) sanderling.screens.trust.Answer
---@field count integer of trusted files
---@field rest string[] the others
---@field has_settings boolean settings are newly trusted, for new sessions

---@type table<string, sanderling.screens.trust.Answer> until the host confirms it, by session id
local answered = {}
---@type table<string, table<string, true>> ignored files that were reported, by project
local reported = {}

-- answers -------------------------------------------------------------------------------------------------------------

---@param self sanderling.screens.trust.View
local function close(self)
  local is_here = api.nvim_get_current_buf() == self.buf
  if api.nvim_buf_is_valid(self.buf) then -- otherwise it was wiped out without autocommands
    api.nvim_buf_delete(self.buf, { force = true })
  end
  if api.nvim_win_is_valid(self.came_from) then
    api.nvim_set_current_win(self.came_from)
    if is_here and self.was_inserting then
      vim.cmd.startinsert({ bang = true })
    end
  end
end

--- Trust the files for which `is_chosen` is true, and no others.
---@param self sanderling.screens.trust.View
---@param is_chosen fun(file: sanderling.TrustFile): boolean
local function answer(self, is_chosen)
  local hashes, count, rest, has_settings = vim.empty_dict(), 0, {}, false
  for _, file in ipairs(self.files) do
    if is_chosen(file) then
      hashes[file.path] = file.sha256
      count = count + 1
      has_settings = has_settings or file.path == SETTINGS and file.state ~= 'trusted'
    else
      rest[#rest + 1] = file.path
    end
  end
  close(self)
  answered[self.session.id] = { count = count, rest = rest, has_settings = has_settings }
  self.session:act({ type = 'trust_files', hashes = hashes })
end

local function is_any()
  return true
end

local function is_none()
  return false
end

---@param self sanderling.screens.trust.View
local function toggle(self)
  local i = trust_page.index_at_cursor(self)
  if not i then
    message.tell('No file under the cursor.')
    return
  end
  local path = self.files[i].path
  self.is_marked[path] = not self.is_marked[path]
  trust_page.redraw_box(self, i)
end

--- Ask with vim.ui.select() whether to trust all files, the marked ones, or none.
---@param self sanderling.screens.trust.View
local function ask_answer(self)
  local function is_marked(file)
    return self.is_marked[file.path] or false
  end
  local marked = #vim.tbl_filter(is_marked, self.files)
  local is_one = #self.files == 1
  local choices = {
    { text = is_one and 'Trust it' or ('Trust all %d'):format(#self.files), is_chosen = is_any },
    { text = is_one and 'Do not trust it' or 'Trust none of them', is_chosen = is_none },
  }
  if marked > 0 and marked < #self.files then
    table.insert(choices, 1, {
      text = ('Trust only the %d marked'):format(marked),
      is_chosen = is_marked,
    })
  end
  vim.ui.select(choices, {
    prompt = trust_page.question(self),
    kind = 'sanderling_trust',
    format_item = function(choice)
      return choice.text
    end,
  }, function(choice)
    if choice and view == self then
      answer(self, choice.is_chosen)
    end
  end)
end

--- Call `act` if the page was open long enough for the key to be meant for it.
---@param self sanderling.screens.trust.View
---@param act fun(self: sanderling.screens.trust.View)
---@param is_last_word? boolean there is no second question: ignore letters of blind typing
local function when_meant(self, act, is_last_word)
  return function()
    local since = is_last_word and math.max(self.since, self.keys[1]) or self.since
    if vim.uv.hrtime() - since >= attention.GRACE_NS then
      act(self)
    end
  end
end

--- Record when keys are typed on the trust_page.
---@param self sanderling.screens.trust.View
local function watch_keys(self)
  vim.on_key(function(_, typed)
    if typed ~= '' then
      self.keys = { self.keys[2], vim.uv.hrtime() }
    end
  end, ns)
end

---@param self sanderling.screens.trust.View
local function set_keys(self)
  local actions = { close = when_meant(self, close) }
  if not self.refusal then
    actions.trust_all = when_meant(self, function()
      answer(self, is_any)
    end, true)
    actions.trust_mark = when_meant(self, toggle)
    actions.trust_choose = when_meant(self, ask_answer)
  end
  page.set_keys(self.buf, 'trust', actions)
end

local window_options = {
  wrap = true,
  linebreak = false,
  list = false,
  conceallevel = 0,
  spell = false,
  foldenable = false,
  rightleft = false,
}

---@param session sanderling.chat.session.Session
---@param found sanderling.TrustPage
local function open(session, found)
  if view then
    close(view)
  end
  view = {
    session = session,
    buf = scratch.new('trust'),
    came_from = api.nvim_get_current_win(),
    was_inserting = api.nvim_get_mode().mode:find('^i') ~= nil,
    since = vim.uv.hrtime(),
    keys = { 0, 0 },
    project = found.project,
    files = found.files,
    refusal = found.refusal,
    is_marked = {},
    first_row = 0,
    sections = {},
  }
  for _, file in ipairs(found.files) do
    view.is_marked[file.path] = file.state == 'trusted'
  end
  scratch.set_filetype(view.buf, 'sanderling_trust')
  files.guard(view.buf)
  vim.cmd.stopinsert()
  vim.cmd(('tab sbuffer %d'):format(view.buf))
  scratch.set_buf_options(view.buf, { bufhidden = 'wipe' })
  local before = trust_page.bar() .. icons.narrow('continued') .. ' '
  scratch.set_win_options(0, vim.tbl_extend('error', window_options, { showbreak = before }))
  if not view.refusal then -- visible at any position in a long file
    scratch.set_win_options(0, { winbar = KEYS })
  end
  api.nvim_create_autocmd('BufWipeout', {
    buffer = view.buf,
    once = true,
    desc = 'Agent: forget the page',
    callback = function()
      view = nil
      vim.on_key(nil, ns)
    end,
  })
  trust_page.draw(view)
  set_keys(view)
  watch_keys(view)
  api.nvim_win_set_cursor(0, { view.first_row + 1, 0 })
end

-- events --------------------------------------------------------------------------------------------------------------

--- Request the files from the host, then show them.
---@param session sanderling.chat.session.Session
function M.ask(session)
  session:ask({ type = 'show_trust' }, function(found, is_here)
    local has_files = #(found.files or {}) > 0
    if not has_files and found.refusal then
      session:say('warning', found.refusal)
    elseif not has_files then
      message.tell('This project has no files that need trust.')
    elseif is_here then
      open(session, found)
    else
      message.tell('Files ready. Run :Agent trust again to review them.')
    end
  end)
end

---@param paths string[]
---@return string
local function sentence(paths)
  local names = vim.tbl_map(words.plain, vim.list_slice(paths, 1, NAMED_PATHS))
  if #paths > NAMED_PATHS then
    names[#names + 1] = ('%d more'):format(#paths - NAMED_PATHS)
  end
  local list = table.concat(names, ', ', 1, #names - 1)
  list = list == '' and names[1] or ('%s and %s'):format(list, names[#names])
  return #paths == 1 and ('%s is ignored until trusted: :Agent trust.'):format(list)
    or ('%s are ignored until trusted: :Agent trust.'):format(list)
end

--- Report the same files only once.
bus.subscribe('trust_needed', function(session_id, event)
  local session = live.find(session_id)
  local known = session and reported[session.project] or {}
  local key = table.concat(event.paths, '\n')
  if session and #event.paths > 0 and not known[key] then
    known[key] = true
    reported[session.project] = known
    session:say('info', sentence(event.paths), 'trust')
  end
end)

--- The host has stored the answer: the trusted files decide which commands exist.
bus.subscribe('slash_commands_changed', function(session_id)
  local confirmed, session = answered[session_id], live.find(session_id)
  answered[session_id] = nil
  if not confirmed or not session then
    return
  end
  local text = confirmed.count == 0 and 'No project files are trusted now.'
    or ('%s trusted, as shown.'):format(words.counted(confirmed.count, 'file'))
  if confirmed.has_settings then
    text = text .. ' Its settings take effect in new sessions: :Agent clear.'
  end
  message.tell(text)
  reported[session.project] = nil
  for _, other in ipairs(live.all()) do
    if other.project == session.project then
      other:correct('trust', #confirmed.rest > 0 and sentence(confirmed.rest) or text)
    end
  end
end)

bus.subscribe('local_closed', function(session_id)
  answered[session_id] = nil
  if view and view.session.id == session_id then
    close(view)
  end
end)

return M
