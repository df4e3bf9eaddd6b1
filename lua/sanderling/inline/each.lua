--- `:AgentEach`: one small rewrite for each entry of a list. Each result is an inline edit that waits for the user, so
--- nothing changes until it is accepted.
local M = {}

local api = vim.api
local context = require('sanderling.inline.context')
local edits = require('sanderling.inline.edits')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local quickfix = require('sanderling.ui.quickfix')
local regions = require('sanderling.inline.region')
local stored = require('sanderling.session.stored')
local units = require('sanderling.inline.units')
local words = require('sanderling.ui.words')

local PARALLEL = 4
local NEAR_LINES = 200 -- between parts that share the text around them: 100 after one, 100 before the other
local MAX = 200 -- rewrites at once
local BYTES_PER_TOKEN = 4
local FIXED_BYTES = 1200 -- of the instructions that each request begins with
local GROWTH = 2 -- how much longer than its lines a rewrite is counted

--- Lines to rewrite.
---@class (exact) sanderling.inline.each.Part
---@field buf integer
---@field first integer line
---@field last integer
---@field notes string[] the texts of the entries
---@field region? sanderling.inline.region.Region
---@field group? sanderling.inline.each.Group
---@field has_begun? boolean
---@field problem? string why it was not rewritten

--- Parts near each other. The first request caches the text around all of them; the others wait for it.
---@class (exact) sanderling.inline.each.Group
---@field parts sanderling.inline.each.Part[]
---@field shared? string
---@field is_cached boolean

--- A run over all parts.
---@class (exact) sanderling.inline.each.Run
---@field instruction string
---@field parts sanderling.inline.each.Part[] in the order of the list's files and of their lines
---@field pending table<integer, fun()> stops a request, by part
---@field is_stopped boolean

---@type sanderling.inline.each.Run?
local running

-- the parts -----------------------------------------------------------------------------------------------------------

---@param path string
---@return integer? buf
---@return string? problem
local function load(path)
  path = vim.fn.fnamemodify(path, ':p')
  if not vim.uv.fs_stat(path) then
    return nil, ('%s does not exist'):format(words.plain(vim.fn.fnamemodify(path, ':.')))
  end
  local buf, problem = loading.load(path, true)
  if buf and loading.is_quiet(buf) then
    loading.set_filetype(buf) -- by which its grammar is known
  end
  return buf, problem
end

---@param item vim.quickfix.entry
---@return integer? buf loaded
---@return string? problem
local function buffer_of(item)
  local buf = item.bufnr or 0
  if buf > 0 and api.nvim_buf_is_loaded(buf) then
    return buf
  elseif buf > 0 then
    return load(api.nvim_buf_get_name(buf))
  elseif item.filename then
    return load(item.filename)
  end
  return nil, 'it names no file'
end

---@param item vim.quickfix.entry
---@return sanderling.inline.each.Part? part
---@return string? problem
local function part_of(item)
  local buf, problem = buffer_of(item)
  if not buf then
    return nil, problem
  end
  local count, first = api.nvim_buf_line_count(buf), assert(item.lnum)
  if first < 1 or first > count then
    return nil, ('it has no line %d'):format(first)
  end
  local last = item.end_lnum or 0
  if last <= first then
    last = units.last_line(buf, first)
  end
  local text = words.trimmed(item.text or '')
  local is_line = text == words.trimmed(api.nvim_buf_get_lines(buf, first - 1, first, true)[1])
  local data = item.user_data --[[@as any]]
  local notes = type(data) == 'table' and data.sanderling_notes
    or text ~= '' and not is_line and { text }
    or {}
  return { buf = buf, first = first, last = math.min(last, count), notes = notes }
end

---@param name string
---@return boolean a file that the sandbox hides, as is_env_file of src/sanderling/sandbox/guard/repositories.py has it
local function is_env_file(name)
  return vim.endswith(name, '.env') or vim.startswith(name, '.env.')
end

--- Return why the file of a list's entry is not sent, if the user has not opened it: the model, or the output of a command,
--- may have named the entry.
---@param item vim.quickfix.entry
---@param project string
---@return string?
local function refusal(item, project)
  local buf = item.bufnr or 0
  if buf == 0 or api.nvim_buf_is_loaded(buf) and not loading.is_quiet(buf) then
    return nil
  end
  local name = api.nvim_buf_get_name(buf)
  local real = vim.uv.fs_realpath(name) or name
  local root = vim.uv.fs_realpath(project) or project
  local shown = words.plain(vim.fn.fnamemodify(name, ':~:.'))
  if not vim.fs.relpath(root, real) then
    return ('%s is outside the project, and not open'):format(shown)
  elseif is_env_file(vim.fs.basename(real)) or is_env_file(vim.fs.basename(name)) then
    return ('%s is hidden from the model, and not open'):format(shown)
  end
end

--- Group parts by file, in the order of their lines, and join parts that overlap.
---@param parts sanderling.inline.each.Part[]
---@return sanderling.inline.each.Part[]
local function grouped(parts)
  local order, count = {}, 0
  for _, part in ipairs(parts) do
    if not order[part.buf] then
      count = count + 1
      order[part.buf] = count
    end
  end
  table.sort(parts, function(one, other)
    if one.buf ~= other.buf then
      return order[one.buf] < order[other.buf]
    elseif one.first ~= other.first then
      return one.first < other.first
    end
    return one.last < other.last
  end)
  local joined = {} ---@type sanderling.inline.each.Part[]
  for _, part in ipairs(parts) do
    local before = joined[#joined]
    if before and before.buf == part.buf and part.first <= before.last then
      before.last = math.max(before.last, part.last)
      vim.list_extend(before.notes, part.notes)
    else
      joined[#joined + 1] = part
    end
  end
  return joined
end

---@param buf integer
---@param range [integer, integer]
---@return vim.quickfix.entry[] one for each statement or definition that begins in the range
local function items_of_range(buf, range)
  local items, lnum = {}, range[1]
  while lnum <= range[2] do
    local last = lnum
    if api.nvim_buf_get_lines(buf, lnum - 1, lnum, true)[1]:find('%S') then
      last = math.min(units.last_line(buf, lnum), range[2])
      items[#items + 1] = { bufnr = buf, lnum = lnum, end_lnum = last, text = '' }
    end
    lnum = last + 1
  end
  return items
end

---@return vim.quickfix.entry[] one for each whole file of the argument list
local function items_of_arguments()
  return vim.tbl_map(function(name)
    return { filename = name, lnum = 1, end_lnum = math.huge, text = '' }
  end, vim.fn.argv(-1, -1) --[[@as string[] ]])
end

---@return vim.quickfix.entry[] of the list in this window, else of the quickfix list
---@param range? [integer, integer]
local function items_of_list(range)
  local is_loclist = vim.fn.win_gettype() == 'loclist'
  local items = is_loclist and vim.fn.getloclist(0) or vim.fn.getqflist()
  return vim.tbl_filter(function(item)
    return item.valid == 1
  end, range and vim.list_slice(items, range[1], range[2]) or items)
end

---@param range? [integer, integer]
---@param has_bang boolean
---@return vim.quickfix.entry[]
local function items_of(range, has_bang)
  if has_bang then
    return items_of_arguments()
  elseif range and vim.bo.buftype ~= 'quickfix' then
    return items_of_range(api.nvim_get_current_buf(), range)
  end
  return items_of_list(range)
end

-- the run -------------------------------------------------------------------------------------------------------------

--- Return what the list says about a part, as an attachment: it may be the output of a command, or the model's.
---@param part sanderling.inline.each.Part
---@return sanderling.Selection[]
local function notes_of(part)
  if #part.notes == 0 then
    return {}
  end
  local text = table.concat(part.notes, '\n')
  return {
    {
      path = 'The quickfix list',
      origin = 'what it says about the part',
      first_line = 1,
      last_line = #part.notes,
      text = text,
    },
  }
end

---@param run sanderling.inline.each.Run
---@return string[] problems
---@return vim.quickfix.entry[]
local function results_of(run)
  local problems, items = {}, {}
  for _, part in ipairs(run.parts) do
    local rows = part.region and part.region:rows()
    problems[#problems + 1] = part.problem
    items[#items + 1] = {
      bufnr = part.buf,
      lnum = rows and rows + 1 or part.first,
      type = part.problem and 'E' or '',
      text = part.problem or words.first_line(run.instruction),
      user_data = { sanderling_notes = part.notes }, -- for another run on this list
    }
  end
  return problems, items
end

---@param run sanderling.inline.each.Run
local function finish(run)
  running = nil
  local problems, items = results_of(run)
  if run.is_stopped and #problems == #items then -- the user's list stays
    return message.tell('Stopped: no rewrite was complete.')
  end
  quickfix.set('AgentEach: ' .. words.first_line(run.instruction), items)
  local ready = words.counted(#items - #problems, 'rewrite') .. ' to review'
  if #problems > 0 then
    local text = ('%s, %d failed (%s): :copen lists them.'):format(ready, #problems, problems[1])
    return message.tell(text, vim.log.levels.WARN)
  end
  message.tell(ready .. ": :copen lists them, :AgentAccept! accepts a buffer's.")
end

---@param run sanderling.inline.each.Run
---@return integer? at the next part whose request can be sent
local function next_part(run)
  for at, part in ipairs(run.parts) do
    local group = assert(part.group)
    if not part.has_begun and (group.is_cached or part == group.parts[1]) then
      return at
    end
  end
end

---@param run sanderling.inline.each.Run
local function tell_progress(run)
  local done = 0
  for at, part in ipairs(run.parts) do
    done = done + ((part.has_begun and not run.pending[at]) and 1 or 0)
  end
  if done < #run.parts then
    message.tell(('Rewriting: %d of %d. :AgentEach stops it.'):format(done, #run.parts))
  end
end

---@param run sanderling.inline.each.Run
local function go_on(run)
  local at = next_part(run)
  while at and not run.is_stopped and vim.tbl_count(run.pending) < PARALLEL do
    local here = at
    local part = run.parts[here]
    local region, group = assert(part.region), assert(part.group)
    part.has_begun = true
    if not region:is_as_sent() then
      region:forget()
      part.problem, group.is_cached = 'the lines have changed meanwhile', true
    else
      local notes, shared = notes_of(part), group.shared
      run.pending[here] = edits.begin_one(region, run.instruction, notes, shared, function(problem)
        run.pending[here], part.problem, group.is_cached = nil, problem, true
        if running == run and not run.is_stopped then
          tell_progress(run)
        end
        go_on(run)
      end)
    end
    at = next_part(run)
  end
  if running == run and next(run.pending) == nil then
    finish(run)
  end
end

--- Stop the run: what is ready stays to be reviewed.
---@param run sanderling.inline.each.Run
local function stop(run)
  run.is_stopped = true
  for _, part in ipairs(run.parts) do
    if not part.has_begun then
      part.problem = 'stopped'
      part.region:forget()
    end
  end
  for _, stop_one in pairs(run.pending) do
    stop_one()
  end
  go_on(run)
end

--- Group parts whose surroundings meet, as long as the text around them is not too long.
---@param parts sanderling.inline.each.Part[] in order
local function group_near(parts)
  local group ---@type sanderling.inline.each.Group?
  for _, part in ipairs(parts) do
    local before = group and group.parts[#group.parts]
    local first = group and group.parts[1]
    local is_near = before and before.buf == part.buf and part.first - before.last <= NEAR_LINES
    local shared = is_near and context.shared(part.buf, first.first - 1, part.last - 1)
    if group and shared then
      group.parts[#group.parts + 1], group.shared = part, shared
    else
      group = { parts = { part }, is_cached = false }
    end
    part.group = group
  end
end

--- Return the estimated tokens of all requests.
---@param parts sanderling.inline.each.Part[] with regions
---@param instruction string
---@param project string
---@return integer sent without a cache
---@return integer received at most, unless rewrites grow more than expected
local function estimate(parts, instruction, project)
  local sent, received = 0, 0
  for _, part in ipairs(parts) do
    local request = context.of(assert(part.region), project)
    local shared = part.group.shared
    local fields = shared and { 'text' } or { 'text', 'before', 'after', 'outline' }
    for _, field in ipairs(request and fields or {}) do
      sent = sent + #assert(request)[field]
    end
    sent = sent + #(shared or '')
    sent = sent + FIXED_BYTES + #instruction + #table.concat(part.notes, '\n')
    received = received + GROWTH * #(request and request.text or '')
  end
  return math.ceil(sent / BYTES_PER_TOKEN), math.ceil(received / BYTES_PER_TOKEN)
end

---@param items vim.quickfix.entry[]
---@param is_named boolean the user has named the files
---@return sanderling.inline.each.Part[]
---@return string[] problems of entries that cannot be rewritten
local function parts_of(items, is_named)
  local parts, problems = {}, {}
  local project = stored.root_here()
  for _, item in ipairs(items) do
    local part, problem = nil, not is_named and refusal(item, project) or nil
    if not problem then
      part, problem = part_of(item)
    end
    parts[#parts + 1] = part
    problems[#problems + 1] = problem
  end
  return grouped(parts), problems
end

---@param parts sanderling.inline.each.Part[]
local function forget(parts)
  for _, part in ipairs(parts) do
    part.region:forget()
  end
end

---@param sent integer
---@param received integer
---@param priced sanderling.RewritesPriced
---@return string
local function cost_of(sent, received, priced)
  local usd = priced.usd and words.dollars(priced.usd) or '$?'
  local left = priced.left_usd
      and (' of %s that budget_usd leaves'):format(words.dollars(priced.left_usd))
    or ''
  local text = 'about %s tokens to the model and up to %s back, up to %s%s'
  return text:format(words.short(sent), words.short(received), usd, left)
end

---@param instruction string
---@param parts sanderling.inline.each.Part[]
local function begin(instruction, parts)
  if running then
    forget(parts)
    return message.tell('Another :AgentEach is running.', vim.log.levels.WARN)
  end
  running = { instruction = instruction, parts = parts, pending = {}, is_stopped = false }
  go_on(running)
end

--- Say what the rewrites will send and cost, and ask.
---@param instruction string
---@param parts sanderling.inline.each.Part[]
---@param left_out string[] problems
local function confirm(instruction, parts, left_out)
  local files = {}
  for _, part in ipairs(parts) do
    part.region = regions.lines(part.buf, part.first, part.last)
    files[part.buf] = true
  end
  group_near(parts)
  local what = words.counted(#parts, 'rewrite')
    .. ' in '
    .. words.counted(vim.tbl_count(files), 'file')
  if #left_out > 0 then
    what = ('%s, without %s (%s)'):format(what, words.counted(#left_out, 'place'), left_out[1])
  end
  local project = stored.root_here()
  local sent, received = estimate(parts, instruction, project)
  edits.price(project, sent, received, function(priced)
    if priced.error then
      forget(parts)
      return message.tell(priced.error, vim.log.levels.ERROR)
    end
    local question = ('%s: %s:'):format(what, cost_of(sent, received, priced))
    message.confirm(question, { 'Rewrite', 'Leave it' }, function()
      begin(instruction, parts)
    end, function()
      forget(parts)
    end)
  end)
end

--- Rewrite each entry of the quickfix list, of `range`, or with `!` of the argument list. During a run, stop it.
---@param instruction string
---@param range? [integer, integer]
---@param has_bang boolean
function M.run(instruction, range, has_bang)
  if running then
    stop(running)
    return
  elseif instruction == '' then
    return message.ask({ prompt = 'Do with each: ' }, function(answer)
      if answer and answer:find('%S') then
        M.run(answer, range, has_bang)
      end
    end)
  end
  local parts, problems = parts_of(items_of(range, has_bang), has_bang)
  if #parts == 0 then
    local why = problems[1] and (' (%s)'):format(problems[1]) or ''
    local remedy = has_bang and ':args {file} sets the argument list.'
      or ':AgentPlaces and :AgentFind make a list.'
    local text = ('No entries to rewrite%s. %s'):format(why, #problems == 0 and remedy or '')
    return message.tell(words.trimmed(text), vim.log.levels.WARN)
  elseif #parts > MAX then
    local text = '%d entries are too many at once (at most %d); nothing was sent.'
    return message.tell(text:format(#parts, MAX), vim.log.levels.WARN)
  end
  confirm(instruction, parts, problems)
end

return M
