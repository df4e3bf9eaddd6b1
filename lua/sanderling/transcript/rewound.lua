--- Turns that the user has taken back: dimmed, because the model does not see them any more.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')

local ns = require('sanderling.transcript.writer').NS

local HL = 'AgentRewound'
local PRIORITY = 10000 -- above all that colors an answer

--- Dim the rows from `first` to the last one.
---@param self sanderling.transcript.Transcript
---@param first integer
local function dim_from(self, first)
  api.nvim_buf_set_extmark(self.buf, ns, first, 0, {
    end_row = self.last,
    hl_group = HL,
    priority = PRIORITY,
  })
  for i = #self.headers, 1, -1 do
    local row = self.headers[i]
    if row < first then
      return
    end
    local name = self:line(row):sub(#'## ' + 1)
    api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
      virt_text = { { icons.header .. name, HL } },
      virt_text_pos = 'overlay',
      priority = PRIORITY,
    })
  end
end

---@param self sanderling.transcript.Transcript
---@param prompt_id string
---@return integer? row of its header
local function row_of(self, prompt_id)
  for i = #self.turns, 1, -1 do
    if self.turns[i].id == prompt_id then
      return self.turns[i].first
    end
  end
end

--- Dim the turn of the prompt and all after it. If it is on an earlier page, that is dimmed when it is shown.
---@param self sanderling.transcript.Transcript
---@param prompt_id? string
function M.dim(self, prompt_id)
  local first = prompt_id and row_of(self, prompt_id)
  dim_from(self, first or 0)
  if prompt_id and not first then
    self.rewound[prompt_id] = true
  end
end

--- Dim what is taken back on a page that will be inserted above the transcript.
---@param self sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
function M.dim_page(self, page)
  for prompt_id in pairs(self.rewound) do
    M.dim(page, prompt_id)
  end
  self.rewound = page.rewound
end

return M
