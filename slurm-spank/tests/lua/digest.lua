-- Prints the digest of the workload of each profile, one a line, and of each script where a line is "script:NAME:HEXADECIMAL";
-- tests/lua.rs holds them against crates/core/src/name.rs and workload.rs.
--
-- usage: lua digest.lua PATH/TO/pillion.lua TEMPORARY_DIRECTORY < NAMES

local S = dofile("support.lua")

for line in io.lines() do
  local name, hexadecimal = string.match(line, "^script:([^:]*):(%x*)$")
  if name then
    local script = string.gsub(hexadecimal, "%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
    print(S.pillion.workload_digest(nil, name, script))
  else
    print(S.pillion.workload_digest(line))
  end
end
