-- Prints the digest of the workload of each profile, one a line; tests/lua.rs holds it against crates/core/src/name.rs.
--
-- usage: lua digest.lua PATH/TO/pillion.lua TEMPORARY_DIRECTORY < NAMES

local S = dofile("support.lua")

for name in io.lines() do print(S.pillion.workload_digest(name)) end
