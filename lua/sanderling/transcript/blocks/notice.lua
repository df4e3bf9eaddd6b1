--- Notices and errors of the host and of this client, and the user's undo, redo and rewind.
local M = {}

local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local icons = require('sanderling.ui.icons')
local rewound = require('sanderling.ui.lazy')('sanderling.transcript.rewound')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')
local ns = require('sanderling.transcript.writer').NS

local MAX_FILES = 50

---@type table<string, sanderling.transcript.blocks.Draw>
M.draw = {}

function M.draw.notice(self, event)
  self:end_block()
  local hl = event.level == 'warning' and 'AgentWarning' or 'AgentNotice'
  local row = self:append_block(unseen.visible(event.text), hl)
  if event.topic then
    self.notices[event.topic] = api.nvim_buf_set_extmark(self.buf, ns, row, 0, {})
  end
end

--- Replace the last notice on a topic, which is one line, by a note that it is outdated.
function M.draw.local_notice_outdated(self, event)
  local mark = self.notices[event.topic]
  local row = mark and api.nvim_buf_get_extmark_by_id(self.buf, ns, mark, {})[1]
  if row then
    self:replace_row(row, event.text)
    self:paint(row, row, 'AgentNotice')
  end
end

function M.draw.error_occurred(self, event)
  self:end_countdown()
  self:end_block()
  self:append_block(unseen.visible(event.message), 'AgentError')
  if event.remedy and event.remedy ~= '' then
    local row = self.last + 1
    self:append('\n' .. unseen.visible(event.remedy))
    self:paint(row, self.last, 'AgentRemedy')
  end
end

local DID = {
  undo = 'Reverted',
  redo = 'Redone',
  rewind = 'Reverted',
  finish = 'Finished an interrupted undo',
  worktree = 'Applied',
}

--- List reverted files: lines added and removed, merges, and files that were kept with the reason.
function M.draw.files_restored(self, event)
  self:end_block()
  local files = event.files or {}
  local left = #vim.tbl_filter(function(file)
    return file.how == 'left'
  end, files)
  local count = words.counted(#files - left, 'file')
  local kept = left == 0 and '' or (', %d kept'):format(left)
  local done = #files == 0 and 'nothing to change' or count .. kept
  local title = ('%s %s: %s'):format(icons.rule:rep(2), DID[event.kind], done)
  self:append_block(title, 'AgentNotice')
  for i, file in ipairs(files) do
    local row = self.last + 1
    if i > MAX_FILES then
      self:append(('\n  and %d more'):format(#files - MAX_FILES))
      self:paint(row, self.last, 'AgentNotice')
      break
    end
    self:append('\n  ' .. words.restored(file))
    self:paint(row, self.last, file.how == 'left' and 'AgentWarning' or 'AgentNotice')
  end
  if event.rest_of then
    local row = self.last + 1
    local verb = event.kind == 'redo' and ':AgentRedo' or ':AgentUndo'
    self:append(('\n  %s %d does the rest once that is resolved'):format(verb, event.rest_of))
    self:paint(row, self.last, 'AgentRemedy')
  end
end

function M.draw.conversation_rewound(self, event)
  self:end_block()
  rewound.dim(self, event.prompt_id)
  local text = event.text ~= '' and ' ' .. icons.quoted(words.plain(event.text)) or ''
  self:append_block(
    ('%s back to before the prompt%s'):format(icons.rule:rep(2), text),
    'AgentNotice'
  )
end

M.draw.local_refused = M.draw.error_occurred
M.draw.local_notice = M.draw.notice

blocks.register({
  draw = M.draw,
  beside = { 'local_notice', 'local_notice_outdated' },
  new = function()
    return { notices = {}, rewound = {} }
  end,
})

return M
