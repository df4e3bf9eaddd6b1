--- Reports what is left to review of a file to the host, after each decision and each write, so that a resumed session
--- knows it.
local api = vim.api
local tracker = require('sanderling.review.tracker')
local hunks = require('sanderling.review.hunks')
local live = require('sanderling.session.live')

local MAX_BYTES = 1024 * 1024 -- of a text; of larger ones the host looks up what it can in the journal

---@type table<integer, table<string, true>> by buffer: sessions that have or had unreviewed changes in it
local sessions = {}
---@type table<integer, true> buffers
local is_due = {}

--- Return the text before and after the session's unreviewed changes. Both are without proposals.
---@param self sanderling.review.tracker.Followed
---@param session_id string
---@return string[] before
---@return string[] after
---@return boolean is_any are there unreviewed changes?
local function texts(self, session_id)
  local before, after, next_row, is_any = {}, {}, 0, false
  local function add(list, lines, first, last)
    for i = first, last do
      list[#list + 1] = lines[i]
    end
  end
  for _, hunk in ipairs(self.hunks) do
    local last = hunk.row + hunk.count
    local is_meant = hunk.source.session_id == session_id
    local is_proposed = hunk.source.is_proposed
    for _, list in ipairs({ before, after }) do
      add(list, self.lines, next_row + 1, hunk.row)
      if is_proposed or is_meant and list == before then
        add(list, hunk.old, 1, #hunk.old)
      else
        add(list, self.lines, hunk.row + 1, last)
      end
    end
    next_row, is_any = last, is_any or is_meant and not is_proposed
  end
  add(before, self.lines, next_row + 1, #self.lines)
  add(after, self.lines, next_row + 1, #self.lines)
  return before, after, is_any
end

---@param buf integer
---@param lines string[]
---@return string
local function joined(buf, lines)
  local ends = vim.bo[buf].endofline and #lines > 0
  return table.concat(lines, '\n') .. (ends and '\n' or '')
end

---@param buf integer
---@param session_id string
---@return sanderling.ReviewLeft?
local function left_of(buf, session_id)
  local self = tracker.settled(buf)
  if not self then
    return nil
  end
  local before, after, is_any = texts(self, session_id)
  local bo = vim.bo[buf]
  return is_any
      and {
        before = joined(buf, before),
        after = joined(buf, after),
        encoding = bo.binary and '' or bo.fileencoding,
        line_ending = bo.binary and 'unix' or bo.fileformat,
        has_bom = bo.bomb and not bo.binary,
      }
    or nil
end

---@param buf integer
local function note(buf)
  is_due[buf] = nil
  local name = api.nvim_buf_is_loaded(buf) and api.nvim_buf_get_name(buf) or ''
  local path = name ~= '' and (vim.uv.fs_realpath(name) or name)
  for session_id in pairs(path and sessions[buf] or {}) do
    local left = left_of(buf, session_id)
    if not left then
      sessions[buf][session_id] = nil
    end
    if not left or #left.before + #left.after <= MAX_BYTES then
      live.act(session_id, { type = 'note_reviewed', path = path, left = left })
    end
  end
end

---@param buf integer
local function note_soon(buf)
  if not is_due[buf] then
    is_due[buf] = true
    vim.schedule(function()
      note(buf)
    end)
  end
end

hunks.on_change(function(buf)
  for _, hunk in ipairs(hunks.list(buf)) do
    if not hunk.source.is_proposed then
      sessions[buf] = sessions[buf] or {}
      sessions[buf][hunk.source.session_id] = true
    end
  end
end)

hunks.on_decision(function(list)
  if not list[1].source.is_proposed then
    note_soon(list[1].buf)
  end
end)

local group = api.nvim_create_augroup('sanderling_reviewed', {})

api.nvim_create_autocmd('BufWritePost', {
  group = group,
  desc = 'Agent: store unreviewed changes with the session',
  callback = function(args)
    local disk = package.loaded['sanderling.editing.disk']
    if sessions[args.buf] and not (disk and disk.are_hooks_running) then
      note_soon(args.buf)
    end
  end,
})

api.nvim_create_autocmd('BufWipeout', {
  group = group,
  desc = 'Agent: forget a wiped-out buffer',
  callback = function(args)
    sessions[args.buf] = nil
  end,
})
