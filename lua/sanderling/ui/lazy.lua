--- Return a module that is loaded when one of its functions is first called: the chat opens without most of them. It
--- has functions only; use `require` for other values.
---@param name string
---@return table<string, fun(...): ...>
return function(name)
  return setmetatable({}, {
    __index = function(_, key)
      return function(...)
        return require(name)[key](...)
      end
    end,
  })
end
