--- Notifying language servers of files that change on disk: Neovim watches no files for them on Linux, and few servers do so themselves.
local M = {}

local METHOD = 'workspace/didChangeWatchedFiles'

---@alias sanderling.editing.servers.Kind 'created'|'changed'|'deleted'

---@type table<sanderling.editing.servers.Kind, integer>
local KINDS = { created = 1, changed = 2, deleted = 3 }

--- Notify the running servers.
---@param changes [string, sanderling.editing.servers.Kind][] absolute paths
function M.tell(changes)
  local events = vim.tbl_map(function(change)
    return { uri = vim.uri_from_fname(change[1]), type = KINDS[change[2]] }
  end, changes)
  for _, client in ipairs(package.loaded['vim.lsp'] and vim.lsp.get_clients() or {}) do
    client:notify(METHOD, { changes = events })
  end
end

return M
