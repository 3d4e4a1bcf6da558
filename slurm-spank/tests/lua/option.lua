-- Reads values of --colocate, one a line in hexadecimal, and prints what pillion.lua makes of each; tests/lua.rs holds it
-- against crates/core/src/option.rs.
--
-- usage: lua option.lua PATH/TO/pillion.lua TEMPORARY_DIRECTORY < VALUES

local S = dofile("support.lua")

for line in io.lines() do
  local text = string.gsub(line, "%x%x", function(digits) return string.char(tonumber(digits, 16)) end)
  local option, invalid = S.pillion.parse_option(text)
  if not option then
    assert(type(invalid) == "string" and #invalid > 0)
    print("refused")
  elseif not option.share then
    print("no")
  else
    local memory = option.memory_bytes and string.format("%.0f", option.memory_bytes) or "-"
    local slowdown = option.slowdown and string.format("%.17g", tonumber(option.slowdown)) or "-"
    print(table.concat({ "yes", slowdown, option.profile or "-", memory, option.cap or "-",
      option.isolation or "-", option.restart or "-", option.guest and "guest" or "-", option.session and "session" or "-" }, " "))
  end
end
