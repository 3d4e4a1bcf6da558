-- luacheck of pillion.lua, its example and its tests (tests/lint). Slurm is built with Lua 5.1 to 5.4, so only what all of
-- them have is known: `min`.
std = "min"
max_line_length = 140

-- What slurmctld gives to job_submit.lua, as far as it is used: whatever else is read is a mistake.
local SLURM = {
  "ERROR", "EXPEDITED_REQUEUE", "GRES_ENFORCE_BIND", "INFINITE", "JOB_SHARED_OK", "NO_VAL", "NO_VAL16", "SUCCESS",
  "log_error", "log_info", "log_user",
}
local fields = {}
for _, name in ipairs(SLURM) do fields[name] = {} end
read_globals = { slurm = { fields = fields } }

-- The functions that slurmctld calls.
files["deploy/slurm/job_submit.lua.example"].globals = { "slurm_job_submit", "slurm_job_modify" }
-- The tests play slurmctld, and the clock.
files["slurm-spank/tests/lua"] = { globals = { "slurm" }, ignore = { "122/os" } }
