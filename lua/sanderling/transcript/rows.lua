--- What a transcript remembers by its row, when rows above it come or go: pages of the history, an answer that is taken back.
local M = {}

---@param items table<any, table>
---@param fields string[] that hold rows
---@param from integer
---@param delta integer
local function shift_fields(items, fields, from, delta)
  for _, item in pairs(items) do
    for _, field in ipairs(fields) do
      if item[field] and item[field] >= from then
        item[field] = item[field] + delta
      end
    end
  end
end

--- Rows were put in before the row `from`, or as many as `-delta` taken out that stood right before it.
---@param transcript sanderling.transcript.Transcript
---@param from integer
---@param delta integer
function M.shift(transcript, from, delta)
  for i, row in ipairs(transcript.headers) do
    transcript.headers[i] = row >= from and row + delta or row
  end
  shift_fields(transcript.turns, { 'first', 'answer' }, from, delta)
  shift_fields(transcript.pieces, { 'first', 'last' }, from, delta)
  shift_fields(transcript.folds, { 'first', 'last' }, from, delta)
  shift_fields(transcript.tool_blocks, { 'first', 'last', 'diff' }, from, delta)
  shift_fields(transcript.tools, { 'row' }, from, delta)
  if transcript.open then
    shift_fields({ transcript.open }, { 'first', 'row' }, from, delta)
    shift_fields({ transcript.open.output }, { 'row' }, from, delta)
  end
  shift_fields({ transcript }, { 'last', 'tool_end' }, from, delta)
  transcript.markdown:shift(from, delta)
end

--- What `page` remembers stands above what `transcript` does; the rows of both are right already.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
function M.prepend(transcript, page)
  for _, name in ipairs({ 'headers', 'turns', 'folds', 'tool_blocks' }) do
    transcript[name] = vim.list_extend(page[name], transcript[name])
  end
  transcript.markdown:prepend(page.markdown)
end

return M
