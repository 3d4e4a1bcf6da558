-- Plays slurmctld for pillion.lua: the table `slurm`, job descriptions that behave as Slurm 24.11's do (text is cleared by
-- "", nil raises, an unknown field is an error), partitions, and a heartbeat file. No Slurm is needed.
--
-- usage: lua TEST.lua PATH/TO/pillion.lua TEMPORARY_DIRECTORY

local S = {}

local module_path, directory = arg[1], arg[2]

slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, NO_VAL64 = 2 ^ 64, INFINITE = 4294967295,
  JOB_SHARED_OK = 1, GRES_ENFORCE_BIND = 16, EXPEDITED_REQUEUE = 2 ^ 43,
}
function slurm.log_user(format, ...) S.said[#S.said + 1] = string.format(format, ...) end
function slurm.log_error(format, ...) S.logged[#S.logged + 1] = string.format(format, ...) end

function slurm.log_info(format, ...) S.noted[#S.noted + 1] = string.format(format, ...) end

S.said, S.logged, S.noted = {}, {}, {}
S.heartbeat_path = directory .. "/heartbeat"
S.pillion = dofile(module_path)
S.pillion.configure({ heartbeat = S.heartbeat_path, pools = { "shared" }, trusted_uids = { 64030 } })
S.POOL = "pool=shared cpus=8 memory_mib=8000 features=a100,nvlink gpu_types=a100"
S.SHAPE = "shape=shared g0,g1,g2,g3"
S.ALICE = 2001

function S.write_heartbeat(text)
  local file = assert(io.open(S.heartbeat_path, "w"))
  file:write(text)
  file:close()
end

function S.beat(age, mode, ...)
  local lines = { string.format("pillion1 epoch=%.0f bound=600 mode=%s", os.time() - (age or 0), mode or "active") }
  for _, pool in ipairs({ ... }) do lines[#lines + 1] = pool end
  if #lines == 1 then lines[2], lines[3] = S.POOL, S.SHAPE end
  S.write_heartbeat(table.concat(lines, "\n") .. "\n")
end

local TEXT = {}
for name in string.gmatch([[account admin_comment batch_features burst_buffer clusters comment cpus_per_tres exc_nodes
  features mem_per_tres name partition qos req_nodes reservation script tres_bind tres_freq tres_per_job tres_per_node
  tres_per_socket tres_per_task]], "%S+") do TEXT[name] = true end

local NUMBERS = {
  begin_time = 0, bitflags = 503316480, cpus_per_task = 65534, het_job_offset = 4294967294, max_nodes = 4294967294,
  min_cpus = 1, min_nodes = 4294967294, ntasks_per_node = 65534, ntasks_per_tres = 65534, num_tasks = 4294967294,
  pn_min_cpus = 65534, priority = 4294967294, reboot = 65534, requeue = 65534, shared = 65534, sockets_per_node = 65534,
  max_cpus = 4294967294, contiguous = 65534, nice = 4294967294, end_time = 0, time_min = 4294967294,
  spank_job_env_size = 0, time_limit = 4294967294, user_id = S.ALICE, job_state = 0,
}

-- What one job holds, as a plain table; `job.values` of a description is this.
local function values_of(fields)
  local values = {}
  for name, value in pairs(NUMBERS) do values[name] = value end
  for name, value in pairs(fields) do values[name] = value end
  return values
end

-- A job description. `fails_at`: the write with this number raises, as a field that Slurm refuses would.
function S.job(fields, fails_at)
  local values = values_of(fields)
  local writes = 0
  local function write(_, name, value)
    writes = writes + 1
    if fails_at == writes then error("write " .. writes .. " (" .. name .. ") was told to fail") end
    if value == nil then error("bad argument: string or number expected, got nil") end
    if TEXT[name] then
      assert(type(value) == "string", name .. " takes text")
      values[name] = value ~= "" and value or nil
    elseif NUMBERS[name] ~= nil or name == "min_mem_per_node" or name == "min_mem_per_cpu" then
      assert(type(value) == "number", name .. " takes a number")
      values[name] = value
    else
      error("unrecognized field: " .. name)
    end
  end
  local proxy = setmetatable({}, { __index = values, __newindex = write, _job_desc = values })
  return proxy, values, function() return writes end
end

-- A batch job with --colocate (or with the value given) and one more set of fields.
function S.batch(fields, option, fails_at)
  local all = {
    script = "#!/bin/bash\n#SBATCH --colocate\npython train.py\n", name = "train", time_limit = 5,
    spank_job_env_size = 2,
    spank_job_env = { [0] = "OTHER=1", [1] = "_SLURM_SPANK_OPTION_pillion_colocate=" .. (option or "(null)") },
  }
  if option == false then all.spank_job_env, all.spank_job_env_size = nil, 0 end
  for name, value in pairs(fields or {}) do all[name] = value end
  return S.job(all, fails_at)
end

-- The fields of an update: where submit has a default, an update has "no value".
function S.update(changes)
  local fields = { min_cpus = slurm.NO_VAL }
  for name, value in pairs(changes) do fields[name] = value end
  return fields
end

function S.partition(fields)
  local part = { flag_default = 0, flags = 0, max_time = slurm.INFINITE, default_time = slurm.NO_VAL, state_up = 3,
    max_cpus_per_node = slurm.INFINITE }
  for name, value in pairs(fields or {}) do part[name] = value end
  return part
end

function S.partitions(changes)
  local parts = { gpu = S.partition({ flag_default = 1, flags = 1 }), shared = S.partition(), long = S.partition() }
  for name, value in pairs(changes or {}) do parts[name] = value or nil end
  return parts
end

function S.copy(values)
  local copy = {}
  for name, value in pairs(values) do copy[name] = value end
  return copy
end

function S.differences(before, after)
  local names = {}
  for name, value in pairs(before) do if after[name] ~= value then names[#names + 1] = name end end
  for name in pairs(after) do if before[name] == nil then names[#names + 1] = name end end
  table.sort(names)
  return table.concat(names, " ")
end

function S.equal(actual, expected, what)
  if actual ~= expected then
    error(string.format("%s: expected %s, got %s", what or "value", tostring(expected), tostring(actual)), 2)
  end
end

function S.contains(text, part, what)
  if not string.find(text or "", part, 1, true) then
    error(string.format("%s: expected '%s' in '%s'", what or "text", part, tostring(text)), 2)
  end
end

local count = 0
function S.test(name, body)
  S.said, S.logged, S.noted = {}, {}, {}
  S.beat()
  local ok, failure = xpcall(body, debug.traceback)
  if not ok then
    io.stderr:write("FAILED: " .. name .. "\n" .. tostring(failure) .. "\n")
    os.exit(1)
  end
  count = count + 1
end

function S.done() print(count .. " passed with " .. _VERSION) end

return S
