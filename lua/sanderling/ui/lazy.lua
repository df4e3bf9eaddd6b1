--- A module that is loaded when one of its functions is called: the chat's first screen does without most of them. It stands for
--- functions alone; other values of a module are had by `require`.
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
