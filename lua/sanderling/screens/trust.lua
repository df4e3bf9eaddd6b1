--- :AgentTrust: the project's own files that would tell the model or Sanderling what to do, whole, in a tab page of their own,
--- and the question whether they may. What is trusted are the bytes that stand here, by their SHA-256.
local M = {}

local api = vim.api
local attention = require('sanderling.ui.attention')
local bus = require('sanderling.host.bus')
local files = require('sanderling.ui.files')
local float = require('sanderling.ui.float')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local NAMED_PATHS = 3
local BAR = '│ ' -- before each line of a file: none of them can pass for something that is said here
local WIDEST_PATH = 50
local KEYS = 'a: all   t: mark the one at the cursor   <CR>: answer   q: leave them as they are'

local ns = api.nvim_create_namespace('sanderling_trust')

---@class (exact) sanderling.screens.trust.View
---@field session sanderling.chat.session.Session
---@field buf integer
---@field came_from integer window
---@field was_inserting boolean it came from insert mode
---@field since integer when it was opened
---@field keys [integer, integer] when the last two keys were typed on it
---@field project string
---@field files sanderling.TrustFile[]
---@field refusal? string
---@field is_marked table<string, boolean> by path
---@field first_row integer of the list of files
---@field sections integer[] row of the header of each file

---@type sanderling.screens.trust.View?
local view
---@type table<string, fun(): boolean> by session id: a person waits for the files, if this is true
local wanted = {}
---@type table<string, integer> how many files were answered for, until the host confirms it, by session id
local answered = {}
---@type table<string, table<string, true>> what was said of files that are ignored, by session id
local told = {}

-- the page ------------------------------------------------------------------------------------------------------------

---@type table<string, { words: string, hl: string }>
local states = {
  new = { words = 'new', hl = 'AgentNotice' },
  changed = { words = 'changed since you trusted it', hl = 'AgentWarning' },
  trusted = { words = 'trusted', hl = 'AgentStatus' },
}

---@param self sanderling.screens.trust.View
---@param file sanderling.TrustFile
---@return string
local function list_line(self, file)
  local box = self.refusal and ' ' or self.is_marked[file.path] and '☑' or '☐'
  local path = words.visible(words.plain(file.path))
  local gap = (' '):rep(math.max(0, WIDEST_PATH - api.nvim_strwidth(path)))
  return ('%s %s%s  %s'):format(box, path, gap, states[file.state].words)
end

---@param self sanderling.screens.trust.View
---@return string[] lines above the list
local function introduction(self)
  return {
    'The project ' .. words.plain(self.project),
    '',
    'These files would tell the model, or Sanderling itself, what to do.',
    'Each is ignored until you trust it as it stands here, and again once it changes.',
    '',
  }
end

---@param self sanderling.screens.trust.View
---@return string
local function question(self)
  return #self.files == 1 and 'Trust this file as it is shown?'
    or ('Trust these %d files as they are shown?'):format(#self.files)
end

---@param file sanderling.TrustFile
---@return string[]
local function lines_of(file)
  local text = file.text or ''
  return text == '' and {} or words.lines_of(text)
end

---@param self sanderling.screens.trust.View
---@return string[]
local function page(self)
  local lines = introduction(self)
  self.first_row = #lines
  for _, file in ipairs(self.files) do
    lines[#lines + 1] = list_line(self, file)
  end
  vim.list_extend(lines, { '', self.refusal or question(self) })
  for i, file in ipairs(self.files) do
    local text = lines_of(file)
    lines[#lines + 1] = ''
    self.sections[i] = #lines
    local facts = ('%s, %s'):format(states[file.state].words, words.counted(#text, 'line'))
    lines[#lines + 1] = ('%s (%s)'):format(words.visible(words.plain(file.path)), facts)
    for _, line in ipairs(text) do
      lines[#lines + 1] = BAR .. words.visible(line)
    end
  end
  return lines
end

---@param self sanderling.screens.trust.View
---@param row integer
---@param hl string
---@param col? integer
local function paint(self, row, hl, col)
  api.nvim_buf_set_extmark(self.buf, ns, row, col or 0, {
    end_row = row + 1,
    hl_group = hl,
    strict = false,
  })
end

---@param self sanderling.screens.trust.View
---@param i integer of the file
local function paint_list_line(self, i)
  local file, row = self.files[i], self.first_row + i - 1
  local state = states[file.state].words
  local line = api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1]
  paint(self, row, states[file.state].hl, #line - #state)
end

--- Highlight what stands in a file's text for what cannot be seen.
---@param self sanderling.screens.trust.View
---@param lines string[]
local function paint_invisible(self, lines)
  for i = self.sections[1] + 1, #lines do
    local from = 1
    while true do
      local first, last = lines[i]:find('<U%+%x+>', from)
      if not first then
        break
      end
      local mark = { end_col = last, hl_group = 'AgentWarning' }
      api.nvim_buf_set_extmark(self.buf, ns, i - 1, first - 1, mark)
      from = last + 1
    end
  end
end

---@param self sanderling.screens.trust.View
local function draw(self)
  local lines = page(self)
  api.nvim_buf_set_lines(self.buf, 0, -1, true, lines)
  scratch.set_buf_options(self.buf, { modifiable = false })
  paint(self, 0, 'AgentUser')
  paint(
    self,
    self.first_row + #self.files + 1,
    self.refusal and 'AgentError' or 'AgentApprovalTitle'
  )
  for i in ipairs(self.files) do
    paint_list_line(self, i)
    paint(self, self.sections[i], 'AgentUser')
  end
  paint_invisible(self, lines)
end

-- answers -------------------------------------------------------------------------------------------------------------

---@param self sanderling.screens.trust.View
local function close(self)
  local is_here = api.nvim_get_current_buf() == self.buf
  if api.nvim_buf_is_valid(self.buf) then -- else it was wiped out without autocommands
    api.nvim_buf_delete(self.buf, { force = true })
  end
  if api.nvim_win_is_valid(self.came_from) then
    api.nvim_set_current_win(self.came_from)
    if is_here and self.was_inserting then
      vim.cmd.startinsert({ bang = true })
    end
  end
end

--- Trust the files of which `is_chosen` is true, and no others.
---@param self sanderling.screens.trust.View
---@param is_chosen fun(file: sanderling.TrustFile): boolean
local function answer(self, is_chosen)
  local hashes, count = vim.empty_dict(), 0
  for _, file in ipairs(self.files) do
    if is_chosen(file) then
      hashes[file.path] = file.sha256
      count = count + 1
    end
  end
  close(self)
  answered[self.session.id] = count
  self.session:act({ type = 'trust_files', hashes = hashes })
end

local function is_any()
  return true
end

local function is_none()
  return false
end

--- The file that the cursor is on: its line of the list, or its text.
---@param self sanderling.screens.trust.View
---@return integer?
local function index_at_cursor(self)
  local row = api.nvim_win_get_cursor(0)[1] - 1
  local index
  for i, header in ipairs(self.sections) do
    if row == self.first_row + i - 1 or row >= header then
      index = i
    end
  end
  return index
end

---@param self sanderling.screens.trust.View
local function toggle(self)
  local i = index_at_cursor(self)
  if not i then
    message.tell('The cursor is on no file.')
    return
  end
  local file = self.files[i]
  self.is_marked[file.path] = not self.is_marked[file.path]
  local row = self.first_row + i - 1
  scratch.set_buf_options(self.buf, { modifiable = true })
  api.nvim_buf_clear_namespace(self.buf, ns, row, row + 1)
  api.nvim_buf_set_text(
    self.buf,
    row,
    0,
    row,
    #'☐',
    { self.is_marked[file.path] and '☑' or '☐' }
  )
  scratch.set_buf_options(self.buf, { modifiable = false })
  paint_list_line(self, i)
end

--- Ask with vim.ui.select(): those that are marked, all, or none.
---@param self sanderling.screens.trust.View
local function ask_answer(self)
  local function is_marked(file)
    return self.is_marked[file.path] or false
  end
  local marked = #vim.tbl_filter(is_marked, self.files)
  local choices = {
    { text = ('Trust all %d'):format(#self.files), is_chosen = is_any },
    { text = 'Trust none of them', is_chosen = is_none },
  }
  if marked > 0 and marked < #self.files then
    table.insert(choices, 1, {
      text = ('Trust only the %d marked'):format(marked),
      is_chosen = is_marked,
    })
  end
  vim.ui.select(choices, {
    prompt = question(self),
    format_item = function(choice)
      return choice.text
    end,
  }, function(choice)
    if choice and view == self then
      answer(self, choice.is_chosen)
    end
  end)
end

--- Call `act` when the page has been there long enough to be what the key was meant for.
---@param self sanderling.screens.trust.View
---@param act fun(self: sanderling.screens.trust.View)
---@param is_last_word? boolean nothing asks again: a letter of words that are typed on, blindly, does not count
local function when_meant(self, act, is_last_word)
  return function()
    local since = is_last_word and math.max(self.since, self.keys[1]) or self.since
    if vim.uv.hrtime() - since >= attention.GRACE_NS then
      act(self)
    end
  end
end

--- Note when keys are typed on the page.
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
  float.set_keys(self.buf, 'trust', actions)
end

local window_options = {
  wrap = true,
  showbreak = BAR .. '↪ ',
  linebreak = false,
  list = false,
  conceallevel = 0,
  spell = false,
  foldenable = false,
  rightleft = false,
}

---@param session sanderling.chat.session.Session
---@param event sanderling.TrustShown
local function open(session, event)
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
    project = event.project,
    files = event.files,
    refusal = event.refusal,
    is_marked = {},
    first_row = 0,
    sections = {},
  }
  for _, file in ipairs(event.files) do
    view.is_marked[file.path] = file.state == 'trusted'
  end
  scratch.set_filetype(view.buf, 'sanderling_trust')
  files.guard(view.buf)
  vim.cmd.stopinsert()
  vim.cmd(('tab sbuffer %d'):format(view.buf))
  scratch.set_buf_options(view.buf, { bufhidden = 'wipe' })
  scratch.set_win_options(0, window_options)
  if not view.refusal then -- in sight wherever in a long file one is
    scratch.set_win_options(0, { winbar = KEYS })
  end
  api.nvim_create_autocmd('BufWipeout', {
    buffer = view.buf,
    once = true,
    desc = 'Agent: the page is closed',
    callback = function()
      view = nil
      vim.on_key(nil, ns)
    end,
  })
  draw(view)
  set_keys(view)
  watch_keys(view)
  api.nvim_win_set_cursor(0, { view.first_row + 1, 0 })
end

-- what the host tells -------------------------------------------------------------------------------------------------

--- Ask the host for the files, and show them when they come.
---@param session sanderling.chat.session.Session
function M.ask(session)
  wanted[session.id] = attention.watch()
  session:act({ type = 'show_trust' })
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
  return #paths == 1 and ('%s is ignored: :AgentTrust shows it and lets you trust it.'):format(list)
    or ('%s are ignored: :AgentTrust shows them and lets you trust them.'):format(list)
end

--- Say it once of the same files.
bus.subscribe('trust_needed', function(session_id, event)
  local session = live.find(session_id)
  local known = session and told[session.project] or {}
  local key = table.concat(event.paths, '\n')
  if session and #event.paths > 0 and not known[key] then
    known[key] = true
    told[session.project] = known
    session:say('info', sentence(event.paths))
  end
end)

bus.subscribe('trust_shown', function(session_id, event)
  local is_here, session = wanted[session_id], assert(live.find(session_id))
  wanted[session_id] = nil
  if #(event.files or {}) == 0 and event.refusal then
    session:say('warning', event.refusal)
  elseif #(event.files or {}) == 0 then
    message.tell('The project has no files of its own that would be trusted.')
  elseif is_here and is_here() then
    open(session, event)
  elseif is_here then
    message.tell('The files are read: :AgentTrust shows them.')
  end
end)

--- What is trusted decides which commands there are: this is the host's word that it has written it down.
bus.subscribe('slash_commands_changed', function(session_id)
  local count = answered[session_id]
  answered[session_id] = nil
  if count == 0 then
    message.tell('No file of the project is trusted now.')
  elseif count then
    message.tell(('%s trusted, as shown.'):format(words.counted(count, 'file')))
  end
end)

bus.subscribe('local_closed', function(session_id)
  wanted[session_id], answered[session_id] = nil, nil
  if view and view.session.id == session_id then
    close(view)
  end
end)

return M
