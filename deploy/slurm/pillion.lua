-- pillion.lua: what the controller does with a job at submit and at update (row 1 of docs/architecture.md).
--
-- A module for the site's own job_submit.lua, loaded by pcall(dofile, ..): see job_submit.lua.example. It turns a job
-- with --colocate into one that waits in a pool partition for a decision, and keeps everybody but the scheduler away from
-- shards. It runs under slurmctld's locks: no network, no program is run, one small local file is read, and every loop is
-- bounded. What is not provably one GPU, or so many GPUs of each of so many nodes, in a batch job (or one GPU in an
-- interactive one, whose user says how much of its memory that takes) is left as its user wrote it, with one line why. A
-- job that names a pool partition without --colocate is refused, or has whole GPUs there (`pool.plain_jobs`), or counts
-- as one that has said it (`pool.colocate`).
--
-- Lua 5.1 to 5.4: Debian builds Slurm with 5.1, Red Hat with 5.4. So: no integers, no bit operators, no string.unpack;
-- whole numbers are printed by "%.0f". Formats shared with Rust: crates/core/src/{option,mark,heartbeat}.rs.
--
-- A managed job is one that is pending, carries our mark in AdminComment, *and* is in a pool partition. A user cannot
-- touch the mark (nor can lua on his behalf: Slurm refuses), so taking a job out of management is moving it out of the
-- pool; whoever reads marks must look at the partition too.

local M = {}

local config = {
  heartbeat = "/run/pillion/heartbeat", -- written by the scheduler, here on the controller
  pools = {}, -- pool partitions, guarded even while there is no heartbeat
  trusted_uids = {}, -- besides root and SlurmUser: who may ask for shards
  guest_qos = "", -- the QOS of jobs that are submitted as guests and name none: how they are billed, and whom they come after
  unmanaged_qos = {}, -- QOS that demand gres/gpu (MinTRES), which a job with shards does not have
}

local STALE_AFTER_SECONDS = 30
local LEASE_SECONDS = 30 -- how long a decided release may take to reach us
local QOS_MAX = 16 -- that a job may name
local TAKE_BACK_SECONDS = 20 -- so long the scheduler may take to take a place back whose job was started again
local COMPLETING = 2 ^ 15 -- JOB_COMPLETING of slurm.h
local SESSION_BOUND_SECONDS = 20 -- so long an interactive job waits for a decision: SESSION_BOUND of crates/scheduler/src/renew.rs
local HEARTBEAT_LENGTH_MAX = 64 * 1024
local OPTION_LENGTH_MAX = 256
local MARK_PREFIXES = { "pillion1;", "pillion2;" } -- of one GPU, and of several
local MARK_LENGTH_MAX = 520
-- As it is admitted with: a release adds to it.
local MARK_LENGTH_FIRST_MAX = 400
local GPUS_MAX = 64 -- of one node: DEVICES_MAX of crates/core/src/gres_types.rs
local PREAMBLE_LENGTH_MAX = 256 * 1024 -- where #SBATCH lines are looked for
local OPTION_PREFIX = "_SLURM_SPANK_OPTION_pillion_colocate="
local DEADLINE_HINT = "PILLION_DEADLINE=" -- set by our plugin in sbatch: lua is not shown --deadline
local VARIABLE_HINT = "PILLION_SBATCH_COLOCATE=" -- the same of SBATCH_COLOCATE in its environment
local TRES_FIELDS = {
  "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "cpus_per_tres", "mem_per_tres", "tres_bind",
}

-- Sets what differs from the defaults above.
function M.configure(options)
  for name, value in pairs(options) do
    if type(value) ~= type(config[name]) then
      error("pillion.configure: '" .. tostring(name) .. "' is not known or not a " .. type(config[name]), 2)
    end
    config[name] = value
  end
end

-- Small things ------------------------------------------------------------------------------------------------------

-- A number that Slurm was given; nil for its "no value" (16 and 32 bits wide) and for none.
local function given(value)
  if value == nil or value == slurm.NO_VAL or value == slurm.NO_VAL16 then return nil end
  return value
end

-- Text that is not empty.
local function text_of(value)
  if value == nil or value == "" then return nil end
  return value
end

local function has_bit(flags, bit)
  return math.floor((flags or 0) / bit) % 2 == 1
end

local function contains(list, wanted)
  for _, value in ipairs(list) do
    if value == wanted then return true end
  end
  return false
end

local function split(text, separator)
  local parts = {}
  for part in string.gmatch(text .. separator, "([^" .. separator .. "]*)" .. separator) do
    parts[#parts + 1] = part
  end
  return parts
end

-- One line to the user. Never with his own text in it, unless that was checked.
local function say(message)
  slurm.log_user("%s", "pillion: " .. message)
end

-- One line to slurmctld.log for each submission that is refused or left alone, and each change that is refused: what else
-- could count them may not be written from here. docs/metrics.md tells how to count; the wording stays. `why` is a word, or
-- a sentence of ours that was said to the user too.
local function note(what, uid, why)
  local clean = string.gsub(string.sub(why, 1, 200), "[^ -~]", "?")
  slurm.log_info("%s", string.format("pillion: %s uid=%.0f why=%s", what, uid, clean))
end

-- slurmctld runs as SlurmUser, so its own uid is the second one to trust.
local function own_uid()
  local file = io.open("/proc/self/status", "r")
  if not file then return nil end
  local text = file:read(4096) or ""
  file:close()
  return tonumber(string.match(text, "\nUid:%s+%d+%s+(%d+)"))
end

local read_own_uid, slurm_user_uid = pcall(own_uid)

local function is_trusted(uid)
  return uid == 0 or (read_own_uid and uid == slurm_user_uid) or contains(config.trusted_uids, uid)
end

-- The option: the grammar of crates/core/src/option.rs ---------------------------------------------------------------

local MEMORY_UNITS = { K = 2 ^ 10, M = 2 ^ 20, G = 2 ^ 30, T = 2 ^ 40 }

local function parse_slowdown(text)
  local plain = #text <= 8 and string.match(text, "^%d[%d.]*$") and string.match(text, "%d$")
  local number = plain and tonumber(text)
  if number and number >= 1 and number <= 10 then return number end
  return nil
end

local function parse_memory(text)
  local digits, unit, rest = string.match(text, "^(%d+)([KMGT])(.*)$")
  if not digits or #digits > 12 or not (rest == "" or rest == "B" or rest == "iB") then return nil end
  local bytes = tonumber(digits) * MEMORY_UNITS[unit]
  if bytes >= 1 and bytes <= 2 ^ 44 then return bytes end
  return nil
end

local function parse_cap(text)
  return (text == "1" or string.match(text, "^0%.[1-9]$")) and text or nil
end

-- Reads a value of --colocate: {share = bool, slowdown = text, profile = text, memory_bytes = number, cap = text,
-- isolation = text, restart = text, guest = bool, session = bool}, or nil and a sentence that says what is allowed.
function M.parse_option(text)
  if text == "" or text == "(null)" or text == "yes" then return { share = true } end
  if text == "no" or text == "off" then return { share = false } end
  if #text > OPTION_LENGTH_MAX then
    return nil, string.format("--colocate: the value is %d bytes long; at most 256 are allowed", #text)
  end
  if string.find(text, "[^%w._=,-]") or string.find(text, "[\128-\255]") then
    return nil, "--colocate: the value may hold only letters, digits and . _ - = ,"
  end
  local option = { share = true }
  for _, setting in ipairs(split(text, ",")) do
    local name, value = string.match(setting, "^([^=]*)=(.*)$")
    local key, parsed
    if name == "max-slowdown" then
      key, parsed = "slowdown", parse_slowdown(value) and value
    elseif name == "profile" then
      key, parsed = "profile", #value <= 64 and string.match(value, "^[%w._-]+$")
    elseif name == "memory" then
      key, parsed = "memory_bytes", parse_memory(value)
    elseif name == "cap" then
      key, parsed = "cap", parse_cap(value)
    elseif name == "isolation" then
      key, parsed = "isolation", value == "hard" and value
    elseif name == "restart" then
      key, parsed = "restart", (value == "yes" or value == "early") and value
    elseif setting == "guest" or setting == "session" then
      key, parsed = setting, true
    end
    if not parsed then
      return nil, "--colocate: '" .. setting .. "' is not allowed; allowed are yes, no, guest, session, max-slowdown=R (1 to 10), "
        .. "profile=NAME (1 to 64 letters, digits, dots, underscores or dashes), memory=SIZE (such as 8G, at most 16T), "
        .. "cap=PART (0.1, 0.2, .. 0.9 or 1), isolation=hard and restart=yes or early"
    end
    if option[key] then
      return nil, "--colocate: " .. (name and name .. "=" or setting) .. " is given twice; give it once"
    end
    option[key] = parsed
  end
  return option
end

-- What SPANK left with the job that begins with `prefix`; nil for nothing.
local function spank_value(job, prefix)
  local entries = job.spank_job_env
  if type(entries) ~= "table" then return nil end
  for index = 0, math.min((job.spank_job_env_size or 0), 256) - 1 do
    local entry = entries[index]
    if entry and string.sub(entry, 1, #prefix) == prefix then return string.sub(entry, #prefix + 1) end
  end
  return nil
end

-- The heartbeat: crates/core/src/heartbeat.rs ------------------------------------------------------------------------

local function parse_pool(line)
  local partition, cpus, memory, features, types =
    string.match(line, "^pool=(%S+) cpus=(%d+) memory_mib=(%d+) features=(%S*) gpu_types=(%S*)$")
  if not partition then return nil end
  return {
    partition = partition,
    cpus = tonumber(cpus),
    memory_mib = tonumber(memory),
    features = split(features, ","),
    gpu_types = split(types, ","),
    some_types = nil, -- those of gpu_types that not all of its GPUs bear; nil where that is not known
    shapes = {}, -- the devices of its nodes, each list once
    nodes = {}, -- how many there are of each class; none where nobody tells
    waiting = nil, -- how many jobs wait there; nil where a job that does not ask for co-location is refused
    shares = false, -- whether a job that says nothing counts as one that asks for co-location
    open = nil, -- how many of its GPUs an agent stands behind; nil where a scheduler of an earlier release tells nothing of it
  }
end

-- How much of each other GRES a node has, by name and by name:type.
local function gres_of(text)
  local counts = {}
  for _, item in ipairs(split(text, ",")) do
    local name, count = string.match(item, "^(.+):(%d+)$")
    if name then counts[name] = tonumber(count) end
  end
  return counts
end

-- What the heartbeat says of a pool; nil for nothing.
local function pool_of(beat, name)
  for _, pool in ipairs(beat and beat.pools or {}) do
    if pool.partition == name then return pool end
  end
  return nil
end

-- Reads the file whole: {epoch, bound, mode, slowdown, pools}; nil if there is none that can be read.
function M.read_heartbeat()
  local file = io.open(config.heartbeat, "r")
  if not file then return nil end
  local text = file:read(HEARTBEAT_LENGTH_MAX) or ""
  file:close()
  local epoch, bound, mode = string.match(text, "^pillion1 epoch=(%d+) bound=(%d+) mode=(%l+)\n")
  if not epoch then return nil end
  local beat = { epoch = tonumber(epoch), bound = tonumber(bound), mode = mode, pools = {}, per_gpu = {} }
  beat.slowdown = parse_slowdown(string.match(text, "\nslowdown=([%d.]+)\n") or "")
  for line in string.gmatch(text, "[^\n]+") do
    local pool = parse_pool(line)
    if pool then beat.pools[#beat.pools + 1] = pool end
    local partition, shape = string.match(line, "^shape=(%S+) ([%w_,-]+)$")
    local mixed, names = string.match(line, "^models=(%S+) ?(%S*)$")
    local stands_in, count, cpus, memory, features, more =
      string.match(line, "^nodes=(%S+) count=(%d+) cpus=(%d+) memory_mib=(%d+) features=(%S*)(.*)$")
    local holding = pool_of(beat, stands_in)
    if holding then
      holding.nodes[#holding.nodes + 1] =
        { count = tonumber(count), cpus = tonumber(cpus), memory_mib = tonumber(memory), features = split(features, ","),
          scratch_mib = tonumber(string.match(more, " scratch_mib=(%d+)")), gres = string.match(more, " gres=(%S*)$") }
    end
    local admits, waiting = string.match(line, "^plain=(%S+) waiting=(%d+)$")
    local shaped, admitting = pool_of(beat, partition), pool_of(beat, admits)
    if shaped then shaped.shapes[#shaped.shapes + 1] = split(shape, ",") end
    if admitting then admitting.waiting = tonumber(waiting) end
    local mixing = pool_of(beat, mixed)
    if mixing then mixing.some_types = split(names, ",") end
    local sharing = pool_of(beat, string.match(line, "^colocate=(%S+) on$"))
    if sharing then sharing.shares = true end
    local opened, open = string.match(line, "^open=(%S+) (%d+)$")
    local opening = pool_of(beat, opened)
    if opening then opening.open = tonumber(open) end
    local giving, cpus_per_gpu, memory_per_gpu = string.match(line, "^per_gpu=(%S+) cpus=(%d+) memory_mib=(%d+)$")
    if giving then beat.per_gpu[giving] = { cpus = tonumber(cpus_per_gpu), memory_mib = tonumber(memory_per_gpu) } end
  end
  return beat
end

-- Tells the scheduler that a job was sent to wait for it, by a byte in a file of its own beside the heartbeat
-- (crates/scheduler/src/submitted.rs). Never makes the file: without one the scheduler sees the job at its next scan.
local function tell_submitted()
  local file = io.open(string.gsub(config.heartbeat, "[^/]*$", "") .. "submitted", "r+")
  if not file then return end
  file:write("1")
  file:close()
end

-- Why nothing is managed now; nil if all is well.
local function why_idle(beat, now)
  if not beat then return "Pillion's scheduler is not running" end
  if math.abs(now - beat.epoch) > STALE_AFTER_SECONDS then return "Pillion's scheduler has stopped" end
  if beat.mode ~= "active" then return "Pillion only watches at present" end
  if beat.bound < 1 or beat.bound > 86400 then return "Pillion's scheduler gives no bound for waiting" end
  return nil
end

-- The workload's name ------------------------------------------------------------------------------------------------

local DIGEST_LENGTH_MAX = 64 * 1024

-- 16 hexadecimal digits of a text: two polynomial hashes over 32-bit words, modulo two primes just below 2^32. Each
-- product stays below 2^53, so Lua 5.1's floating point gives exactly what 5.3's integers give. It is a name and no
-- safeguard: a key always begins with its user, so a collision made on purpose joins only that user's own workloads.
function M.digest(text)
  local first, second = 1, 2
  for at = 1, #text, 8 do
    local a, b, c, d, e, f, g, h = string.byte(text, at, at + 7)
    local low = a + (b or 0) * 256 + (c or 0) * 65536 + (d or 0) * 16777216
    local high = (e or 0) + (f or 0) * 256 + (g or 0) * 65536 + (h or 0) * 16777216
    first = ((first * 1000003 + low) % 4294967291 * 999983 + high) % 4294967291
    second = ((second * 999979 + low) % 4294967279 * 1000033 + high) % 4294967279
  end
  -- The length, because the last word is filled up with zeroes.
  first = (first * 1000003 + #text) % 4294967291
  second = (second * 999979 + #text) % 4294967279
  return string.format("%08x%08x", first, second)
end

-- The digest of a workload: of the profile's name, or of job name and script without #SBATCH lines and blanks. Of a
-- script above 64 KiB, the two ends and the length stand for the whole, or slurmctld would wait for us.
function M.workload_digest(profile, name, script)
  if profile then return M.digest("profile:" .. profile) end
  local length = #script
  if length > DIGEST_LENGTH_MAX then
    script = string.sub(script, 1, DIGEST_LENGTH_MAX / 2) .. string.sub(script, -DIGEST_LENGTH_MAX / 2) .. length
  end
  script = string.gsub("\n" .. script, "\n#SBATCH[^\n]*", "")
  script = string.gsub(script, "%s+", "")
  return M.digest("script:" .. (name or "") .. ":" .. script)
end

-- What a job asks for ------------------------------------------------------------------------------------------------

-- Reads a list such as gres/gpu:a100:1,gres/lscratch:100 or cpu=4,gres/gpu=1 into {name, type, count, text}; nil where
-- an item is written in a way that we do not know.
local function parse_tres(text)
  local items = {}
  for _, item in ipairs(split(text or "", ",")) do
    if item ~= "" then
      local plain = string.gsub(string.gsub(item, "^gres[/:]", ""), "=", ":")
      if string.find(plain, "[^%w._:-]") then return nil end
      local parts = split(plain, ":")
      local count = tonumber(parts[#parts])
      local kind = (#parts == 3 and parts[2]) or (#parts == 2 and not count and parts[2]) or nil
      if parts[1] == "" or #parts > 3 or (#parts == 3 and not count) then return nil end
      items[#items + 1] = { name = parts[1], kind = kind, count = #parts == 1 and 1 or count or 1, text = plain }
    end
  end
  return items
end

-- The one field that names GPUs, how many, and the rest of the request; nil and the reason if there is no such field, and
-- true where no field names any.
local function find_gpu(job)
  local found, field
  local others = {}
  for _, name in ipairs({ "node", "job", "task", "socket" }) do
    local items = parse_tres(job["tres_per_" .. name])
    if not items then return nil, "its GRES are written in a way that Pillion does not know" end
    for _, item in ipairs(items) do
      if item.name == "gpu" then
        if found then return nil, "it asks for GPUs in more than one place" end
        found, field = item, name
      elseif name == "node" then
        others[#others + 1] = item.text
      elseif not (name == "task" and item.name == "cpu" and item.count == job.cpus_per_task) then
        return nil, "it asks for '" .. item.name .. "' for each " .. name
      end
    end
  end
  if not found then return nil, "it asks for no GPU; write for example --gres=gpu:1", true end
  if found.count < 1 or found.count > GPUS_MAX then return nil, "it asks for so many GPUs that no node has them" end
  return {
    field = field, kind = found.kind, count = found.count, gres = found.text, other = table.concat(others, ","),
  }
end

-- On how many nodes the job runs; nil where that is not certain.
local function node_count(job)
  local least, most = given(job.min_nodes) or 1, given(job.max_nodes)
  if most then return most == least and least or nil end
  if least > 1 then return nil end
  return (given(job.num_tasks) or 1) <= 1 and (given(job.ntasks_per_node) or 1) <= 1 and 1 or nil
end

local function names_deadline(job)
  local head = string.sub(job.script or "", 1, PREAMBLE_LENGTH_MAX)
  local written = string.find("\n" .. head, "\n#SBATCH[^\n]*%-%-dea")
  return written or spank_value(job, DEADLINE_HINT) or string.find(job.submit_line or "", "%-%-dea")
end

-- The QOS that it will run under: what its user named, for a guest what the site gives guests, else the user's own.
local function qos_of(job, is_guest)
  return text_of(job.qos) or (is_guest and text_of(config.guest_qos)) or job.default_qos
end

-- Each of them once where it names several (since 24.11, `-q long,normal`): Slurm may choose any. No more than one too many: each is
-- looked for in the lists of each pool, and Slurm has not looked at it yet.
local function all_qos_of(job, is_guest)
  local each, seen = {}, {}
  for name in string.gmatch(qos_of(job, is_guest) or "", "[^,]+") do
    if not seen[name] then each[#each + 1] = name end
    seen[name] = true
    if #each > QOS_MAX then break end
  end
  return each
end

-- What the job is besides its GPU that keeps it from being managed; nil for nothing.
local function why_unfit(job, gpu, is_guest)
  local shared = given(job.shared)
  if job.cron_job then return "it comes from scrontab" end
  if text_of(job.clusters) then return "it names clusters" end
  local nodes = node_count(job)
  if not nodes then return "it may run on more than one node; write --nodes=1, or as many as it takes" end
  if nodes > 1 and gpu.field ~= "node" then return "on several nodes GPUs are asked for by node; write --gres=gpu:N" end
  if nodes > 1 and (text_of(job.cpus_per_tres) or text_of(job.mem_per_tres)) then
    return "on several nodes it asks for CPUs or memory by GPU; write --cpus-per-task and --mem"
  end
  if shared and shared ~= slurm.JOB_SHARED_OK then return "it asks for --exclusive" end
  if text_of(job.req_nodes) then return "it names its nodes (-w)" end
  if text_of(job.reservation) then return "it uses a reservation" end
  if text_of(job.burst_buffer) then return "it uses a burst buffer" end
  if given(job.reboot) and job.reboot ~= 0 then return "it reboots its node" end
  if has_bit(job.bitflags, slurm.GRES_ENFORCE_BIND or 16) then return "it asks for --gres-flags=enforce-binding" end
  -- Since 25.11: started again before all others on the devices that it had, by Slurm, with no decision of ours.
  if slurm.EXPEDITED_REQUEUE and has_bit(job.bitflags, slurm.EXPEDITED_REQUEUE) then
    return "it asks for --requeue=expedite"
  end
  if given(job.ntasks_per_tres) then return "it asks for --ntasks-per-gpu" end
  if text_of(job.tres_freq) then return "it asks for --gpu-freq, which a neighbour would feel" end
  if names_deadline(job) then return "it has a --deadline" end
  if text_of(job.batch_features) then return "it asks for --batch features" end
  if gpu.field == "task" and given(job.num_tasks) ~= 1 then
    return "each of its tasks gets GPUs of its own, which shards cannot give; write --gres=gpu:N, or --ntasks=1"
  end
  if gpu.field == "socket" and (gpu.count > 1 or given(job.sockets_per_node) ~= 1) then
    return "it asks for GPUs by socket; write --gres=gpu:N, or --sockets-per-node=1 with one"
  end
  if gpu.field == "job" and gpu.count > 1 and given(job.max_nodes) ~= 1 then
    return "it may take its GPUs from several nodes; write --nodes=1"
  end
  -- --gpus-per-task brings this binding with it, and it says nothing where there is one task.
  local bind = text_of(job.tres_bind)
  if bind and not (gpu.field == "task" and bind == string.format("gres/gpu:per_task:%.0f", gpu.count)) then
    return "it asks for --gpu-bind or --tres-bind"
  end
  local named = all_qos_of(job, is_guest)
  if #named > QOS_MAX then return "it names too many QOS" end
  for _, qos in ipairs(named) do
    if contains(config.unmanaged_qos, qos) then return "its QOS demands a whole GPU" end
  end
  return nil
end

-- The number in --cpus-per-gpu or --mem-per-gpu; nil for none, false for what we do not know.
local function per_gpu(text)
  if not text_of(text) then return nil end
  local items = parse_tres(text)
  if not items or #items ~= 1 or items[1].name ~= "gpu" or items[1].kind then return false end
  return items[1].count
end

-- CPUs and memory, with what was asked for by GPU folded in: {cpus, memory_mib, set = {field = value}}. `given_by_gpu`: what the site
-- gives by GPU where nothing is asked for, nil for nothing. Slurm gives it to jobs of GPUs, and of shards it has none.
local function sizes(job, gpu_count, given_by_gpu)
  local cpus_per_gpu, memory_per_gpu = per_gpu(job.cpus_per_tres), per_gpu(job.mem_per_tres)
  if cpus_per_gpu == false or memory_per_gpu == false then return nil, "it asks for CPUs or memory by another GRES" end
  local by_site = given_by_gpu or {}
  local site_cpus = not (cpus_per_gpu or given(job.cpus_per_task)) and (by_site.cpus or 0) > 0 and by_site.cpus or nil
  local asks_for_memory = memory_per_gpu or job.min_mem_per_node or job.min_mem_per_cpu
  local site_memory = not asks_for_memory and (by_site.memory_mib or 0) > 0 and by_site.memory_mib or nil
  if (site_cpus or site_memory) and (node_count(job) or 1) > 1 then
    return nil, "CPUs or memory are given by GPU here, and of several nodes only Slurm can do that; write --cpus-per-task and --mem"
  end
  cpus_per_gpu, memory_per_gpu = cpus_per_gpu or site_cpus, memory_per_gpu or site_memory
  cpus_per_gpu = cpus_per_gpu and cpus_per_gpu * gpu_count
  memory_per_gpu = memory_per_gpu and memory_per_gpu * gpu_count
  local tasks = given(job.num_tasks) or 1
  local by_task = given(job.cpus_per_task)
  local cpus = math.max(given(job.min_cpus) or 1, given(job.pn_min_cpus) or 1, tasks * (by_task or 1))
  local set = {}
  if cpus_per_gpu then
    if by_task then return nil, "it asks for CPUs both by task and by GPU" end
    cpus = math.max(cpus, cpus_per_gpu)
    set.min_cpus = cpus
    if tasks == 1 then set.cpus_per_task = cpus_per_gpu end
  end
  local by_node, by_cpu = job.min_mem_per_node, job.min_mem_per_cpu
  if memory_per_gpu then
    if by_node or by_cpu then return nil, "it asks for memory in more than one way" end
    set.min_mem_per_node = memory_per_gpu
  end
  -- Of one node.
  cpus = math.ceil(cpus / (node_count(job) or 1))
  return { cpus = cpus, memory_mib = memory_per_gpu or by_node or (by_cpu or 0) * cpus, set = set }
end

-- Partitions ---------------------------------------------------------------------------------------------------------

local function default_partition(part_list)
  for name, part in pairs(part_list) do
    if part.flag_default == 1 then return name end
  end
  return nil
end

-- The partitions of a job, as a list of names; its default partition if it names none.
local function named_partitions(partition, part_list)
  if text_of(partition) then return split(partition, ",") end
  local default = default_partition(part_list)
  return default and { default } or {}
end

local function is_pool(name, beat)
  return contains(config.pools, name) or pool_of(beat, name) ~= nil
end

-- The pool among `names`, if any.
local function pool_among(names, beat)
  for _, name in ipairs(names) do
    if is_pool(name, beat) then return name end
  end
  return nil
end

-- The time limit in minutes of a job that writes none in this partition, and which of its settings says so.
local function unwritten_limit(part)
  local default = given(part.default_time)
  if default then return default, "DefaultTime" end
  return part.max_time, "MaxTime"
end

-- The time limit that the job would have where its user sent it: {minutes, source}; nil if that depends on the partition chosen.
local function time_limit(job, names, part_list)
  local written = given(job.time_limit)
  if written then return { minutes = written == 0 and slurm.INFINITE or written, source = "--time" } end
  local limit
  for _, name in ipairs(names) do
    local minutes, source = unwritten_limit(part_list[name])
    if limit and (limit.minutes ~= minutes or limit.source ~= source) then return nil end
    limit = { minutes = minutes, source = source }
  end
  return limit
end

-- What a partition gives to a job that names no memory, and by what, in MiB; 0 where it says nothing, and slurm.conf's word counts, which
-- is not shown here.
local function default_memory(part)
  local by_cpu = given(part.def_mem_per_cpu) or 0
  if by_cpu > 0 then return by_cpu, "CPU" end
  return given(part.def_mem_per_node) or 0, "node"
end

-- Why a job that names no memory would have less in this partition than where its user sent it; nil where it would not, as far as it is
-- shown. It is not written for it: what was asked for by name goes with the job wherever its user moves it afterwards.
local function why_less_memory(job, size, part_list, part)
  if job.min_mem_per_node or job.min_mem_per_cpu or size.set.min_mem_per_node then return nil end
  local here, by = default_memory(part)
  for _, name in ipairs(named_partitions(job.partition, part_list)) do
    local own, own_by = default_memory(part_list[name])
    if own > 0 and (own_by ~= by or own > here) then return "gives less memory to a job that names none; write --mem" end
  end
  return nil
end

-- The minutes to write for the job in this pool; nil where the pool gives the same by itself, or, with a reason, where it cannot
-- have them. Slurm cuts what nobody wrote down to MaxWall of a QOS or an association; what is written it refuses, or never starts.
local function limit_in(part, limit)
  local minutes, source = unwritten_limit(part)
  if limit.source == source and limit.minutes == minutes then return nil end
  if limit.source == "MaxTime" then return nil, "gives another time limit to a job without one; write --time" end
  if limit.minutes > part.max_time then return nil, "has a shorter time limit; write --time" end
  return limit.minutes
end

local function in_list(list, name)
  return name ~= nil and contains(split(string.lower(list), ","), string.lower(name))
end

-- Whether Slurm lets this job into the partition, as far as lua is shown; otherwise why not.
local function why_closed(job, part, is_guest)
  local account = text_of(job.account) or job.default_account
  local function only(list, name)
    return text_of(list) and string.lower(list) ~= "all" and not in_list(list, name)
  end
  if part.state_up ~= 3 then return "is not up" end
  if has_bit(part.flags, 2 ^ 4) then return "demands a reservation" end
  if has_bit(part.flags, 2 ^ 6) then return "is exclusive to one user a node" end
  if only(part.allow_accounts, account) then return "does not admit your account" end
  if text_of(part.deny_accounts) and in_list(part.deny_accounts, account) then return "does not admit your account" end
  local named = all_qos_of(job, is_guest)
  if #named == 0 and only(part.allow_qos, nil) then return "admits some QOS only, and your job has none" end
  for _, qos in ipairs(named) do
    if only(part.allow_qos, qos) or (text_of(part.deny_qos) and in_list(part.deny_qos, qos)) then
      return "does not admit the QOS " .. qos
    end
  end
  if only(part.allow_alloc_nodes, job.alloc_node) then return "does not admit jobs from this host" end
  return nil
end

-- What the partition's own limits keep from it that the partition named by its user might take; nil for nothing. Slurm would refuse such
-- a job, or hold it for ever.
local function why_limited(job, size, part)
  local nodes = node_count(job) or 1
  local most, least, memory = given(part.max_nodes), given(part.min_nodes), given(part.max_mem_per_node)
  if nodes > (most or nodes) or nodes < (least or nodes) then return "takes jobs of other numbers of nodes" end
  -- 0 and the greatest number say that there is none.
  if memory and memory > 0 and memory < 2 ^ 62 and size.memory_mib > memory then return "lets a job have less memory a node" end
  return nil
end

-- The devices that all nodes of a pool have that have so many: what is asked for by name must be on whichever node the job's
-- features and exclusions leave, or Slurm would refuse the submission. nil if there are not so many.
local function shape_for(pool, count)
  local common
  for _, shape in ipairs(pool.shapes) do
    if #shape >= count then
      local both = {}
      for _, name in ipairs(common or shape) do
        if contains(shape, name) then both[#both + 1] = name end
      end
      common = both
    end
  end
  return common and #common >= count and common or nil
end

-- On which devices Slurm starts a job of several GPUs by itself: as many of a node as it asks for, side by side, and others for
-- each submission, so that not all wait for the same.
local submission_count = 0
local function fallback_of(pool, count)
  local shape = shape_for(pool, count)
  submission_count = submission_count + 1
  local groups = math.floor(#shape / count)
  local first = (submission_count % groups) * count
  local names = {}
  for at = first + 1, first + count do
    names[#names + 1] = shape[at]
  end
  return names
end

-- Why a job cannot ask for this model of GPU here; nil if it can. Slurm knows the pool's GPUs as g0, g1, .. and no models of them: without
-- us it would start the job on whichever is free.
local function why_no_model(kind, pool)
  if not contains(pool.gpu_types, kind) then return "has no GPU of that type" end
  if not contains(pool.some_types or {}, kind) then return nil end
  local instead = contains(pool.features, kind) and "write -C " .. kind .. " instead" or "leave the model out"
  return "has GPUs of several models, and Slurm keeps no job to one of them by --gres: " .. instead
end

-- Whether all that the job writes after -C is among these features.
local function has_features(job, features)
  for _, feature in ipairs(split(job.features or "", "&")) do
    if feature ~= "" and not contains(features, feature) then return false end
  end
  return true
end

-- How many nodes a list of them names at most; nil for one that is not understood.
local function listed_count(list)
  -- Slurm has not looked at it yet, and it may be long: what is matched below takes time by its square where brackets stay open.
  if string.find(list, "%[[^%]]*%[") or string.find(list, "%[[^%]]*$") then return nil end
  local count = 0
  for word in string.gmatch(string.gsub(list, "%[[^%]]*%]", function(inner) return (string.gsub(inner, ",", ";")) end), "[^,]+") do
    local ranges, rest = string.match(word, "%[([^%]]*)%](.*)$")
    if rest and rest ~= "" then return nil end
    for range in string.gmatch(ranges or "1", "[^;]+") do
      local first, last = string.match(range, "^(%d+)%-(%d+)$")
      count = count + (first and math.max(0, tonumber(last) - tonumber(first)) or 0) + 1
    end
  end
  return count
end

local BINARY = { K = 2 ^ 10, M = 2 ^ 20, G = 2 ^ 30, T = 2 ^ 40 }

-- Whether a node of this class has so much of other GRES (lscratch:100G, nic:x:2); true where nobody tells. Every submission of the
-- cluster reads the heartbeat, and few ask for these: what the class has is read here.
local function has_gres(class, others)
  if #others == 0 or not class.gres then return true end
  local has = gres_of(class.gres)
  for _, item in ipairs(others) do
    local number, unit = string.match(item.kind or "", "^(%d+)([KMGT])$")
    local name = item.kind and not number and item.name .. ":" .. item.kind or item.name
    local count = number and tonumber(number) * BINARY[unit] or item.count
    if count > (has[name] or 0) then return false end
  end
  return true
end

-- Whether as many nodes as the job asks for have all that it asks of each; true where nobody tells. Slurm refuses a job that no nodes could
-- ever run.
local function has_nodes_for(job, gpu, size, pool)
  if #pool.nodes == 0 then return true end
  local excluded = listed_count(text_of(job.exc_nodes) or "")
  local fit, others = 0, parse_tres(gpu.other) or {}
  for _, class in ipairs(pool.nodes) do
    local is_large_enough = class.cpus >= size.cpus and class.memory_mib >= size.memory_mib
      and (given(job.pn_min_tmp_disk) or 0) <= (class.scratch_mib or math.huge) and has_gres(class, others)
    if is_large_enough and has_features(job, class.features) then fit = fit + class.count end
  end
  -- Nobody says whether those that it excludes are among them.
  return excluded ~= nil and fit - excluded >= (node_count(job) or 1)
end

-- Whether some node of the pool could run the job; otherwise why not.
local function why_too_small(job, gpu, size, pool, part)
  if size.cpus > math.min(pool.cpus, given(part.max_cpus_per_node) or pool.cpus) then return "has too few CPUs a node" end
  if size.memory_mib > pool.memory_mib then return "has too little memory a node" end
  local no_model = gpu.kind and why_no_model(gpu.kind, pool)
  if no_model then return no_model end
  if gpu.count > 1 and not shape_for(pool, gpu.count) then return "has no nodes with so many GPUs of the same names" end
  if not has_features(job, pool.features) then return "has not the features of -C" end
  return nil
end

-- The first of these pools that admits the job and could run it.
local function choose_pool(job, gpu, size, limit, option, pools, part_list)
  local reason = "there is no pool"
  for _, pool in ipairs(pools) do
    local part = part_list[pool.partition]
    local why = "is not open to you"
    if part then
      why = why_closed(job, part, option.guest) or why_too_small(job, gpu, size, pool, part) or select(2, limit_in(part, limit))
      -- Where its user named this partition himself Slurm tells him, and nobody is refused for what only may be.
      if not why and not contains(split(job.partition or "", ","), pool.partition) then
        why = why_limited(job, size, part) or why_less_memory(job, size, part_list, part) or (not has_nodes_for(job, gpu, size, pool)
          and "may have too few nodes with all that it asks of each (-N, -C, -x, CPUs, memory, --tmp, other GRES)" or nil)
      end
    end
    if not why then return pool end
    reason = "partition " .. pool.partition .. " " .. why
  end
  return nil, reason
end

-- Managing -----------------------------------------------------------------------------------------------------------

-- The mark: crates/core/src/mark.rs. nil if it would not fit, or would hold what a mark may not. `devices`: on which Slurm
-- starts a job of several GPUs by itself; nil for one GPU. `option`: nil where it did not ask for co-location. `is_given_qos`: its QOS is
-- the guests', which its user did not name; of this field (`gq`) only this file knows, and others keep it.
local function render_mark(option, digest, partition, gpu, begin, devices, nodes, is_session, is_given_qos)
  local is_whole = devices or nodes > 1 or not option
  local fields = { is_whole and "pillion2" or "pillion1", "w=" .. digest }
  local is_plain = not option
  option = option or {}
  if option.slowdown then fields[#fields + 1] = "s=" .. option.slowdown end
  if option.memory_bytes then
    fields[#fields + 1] = string.format("m=%.0f", math.ceil(option.memory_bytes / 2 ^ 20))
  end
  if option.cap then fields[#fields + 1] = "c=" .. option.cap end
  if option.isolation then fields[#fields + 1] = "i=" .. option.isolation end
  if option.restart then fields[#fields + 1] = "oom=1" end
  if option.restart == "early" then fields[#fields + 1] = "early=1" end
  if option.guest then fields[#fields + 1] = "guest=1" end
  if is_given_qos then fields[#fields + 1] = "gq=1" end
  if is_session then fields[#fields + 1] = "session=1" end
  fields[#fields + 1] = "part=" .. (partition or "")
  fields[#fields + 1] = "field=" .. gpu.field
  fields[#fields + 1] = "gres=" .. gpu.gres
  fields[#fields + 1] = "other=" .. gpu.other
  fields[#fields + 1] = string.format("begin=%.0f", begin)
  if devices then fields[#fields + 1] = "at=" .. table.concat(devices, ",") end
  if nodes > 1 then fields[#fields + 1] = string.format("nodes=%.0f", nodes) end
  if is_plain then fields[#fields + 1] = "plain=1" end
  for index = 2, #fields do
    if string.find(fields[index], "[^%w=,.:_-]") or string.find(fields[index], "[\128-\255]") then return nil end
  end
  local mark = table.concat(fields, ";")
  return #mark <= MARK_LENGTH_FIRST_MAX and mark or nil
end

-- Carries out assignments in order; if one fails, takes back the ones before it, latest first, and gives the error; else nil, and
-- {name, value, before} of each. Text is cleared by "", because nil is an error in Slurm.
local function assign(job, assignments)
  local done = {}
  local ok, failure = pcall(function()
    for _, step in ipairs(assignments) do
      local before = job[step.field]
      if before == nil then before = step.none end
      done[#done + 1] = { step.field, step.value, before }
      job[step.field] = step.value
    end
  end)
  if ok then return nil, done end
  for index = #done, 1, -1 do
    local field, before = done[index][1], done[index][3]
    pcall(function() job[field] = before end)
  end
  return failure
end

-- What a job waits with: one whole GPU, whichever it is, or all of several that are named. Shards of no named GPU are given
-- out of pieces of several.
local function shards_of(devices)
  if not devices then return "gres/shard:100" end
  local each = {}
  for _, name in ipairs(devices) do
    each[#each + 1] = "gres/shard:" .. name .. ":100"
  end
  return table.concat(each, ",")
end

-- Whether the site gives a guest its QOS.
local function gets_guest_qos(job)
  return text_of(config.guest_qos) ~= nil and not text_of(job.qos)
end

-- What a guest has besides: it is started again where somebody needs its GPU, whatever the cluster does with others.
local function plan_guest(job, set)
  if given(job.requeue) == nil then set("requeue", 1, slurm.NO_VAL16) end
  if gets_guest_qos(job) then set("qos", config.guest_qos, "") end
end

local function plan_assignments(job, pool, gpu, size, limit, mark, begin, devices, is_guest)
  local plan = {}
  local function set(field, value, none)
    if job[field] ~= value then plan[#plan + 1] = { field = field, value = value, none = none } end
  end
  set("partition", pool.partition, "")
  if limit then set("time_limit", limit, slurm.NO_VAL) end
  for _, field in ipairs({ "tres_per_job", "tres_per_task", "tres_per_socket", "cpus_per_tres", "mem_per_tres", "tres_bind" }) do
    if text_of(job[field]) then set(field, "", "") end
  end
  if size.set.min_cpus then set("min_cpus", size.set.min_cpus, slurm.NO_VAL) end
  if size.set.cpus_per_task then set("cpus_per_task", size.set.cpus_per_task, slurm.NO_VAL16) end
  local others = gpu.other ~= "" and ",gres/" .. string.gsub(gpu.other, ",", ",gres/") or ""
  set("tres_per_node", shards_of(devices) .. others, "")
  set("admin_comment", mark, "")
  if is_guest then plan_guest(job, set) end
  local memory = size.set.min_mem_per_node
  -- Lua cannot write Slurm's "no value" back (64 bits; it arrives as 0, a whole node's memory). The same amount may stay.
  if memory then set("min_mem_per_node", memory, memory) end
  -- Last of all: until this is set, the job is eligible, and Slurm would start it.
  set("begin_time", begin, 0)
  return plan
end

-- What happens without us.
local function alone_from(begin, now)
  local today = os.date("%Y-%m-%d", now) == os.date("%Y-%m-%d", begin)
  return "; should Pillion stop, Slurm starts it alone from " .. os.date(today and "%H:%M" or "%Y-%m-%dT%H:%M", begin) .. " on"
end

-- What a job that is managed now does, what it is promised, and what happens without us. `count`: its GPUs of a node. `nodes`:
-- how many.
local function understood(option, beat, count, nodes, begin, now)
  local slowdown, cap = tonumber(option.slowdown) or (not option.guest and beat.slowdown or nil), option.cap
  local limit = "slowed no more than its pairing promises"
  if slowdown and slowdown >= 2 then
    limit = string.format("it takes at most %.1f times as long", slowdown)
  elseif slowdown and slowdown > 1 then
    limit = string.format("at most %.0f %% slower", (slowdown - 1) * 100)
  elseif slowdown then
    limit = "no slower"
  end
  local what = "waits for a GPU, of its own or shared; if shared, " .. limit
  if cap == "1" then
    what = "waits for a GPU of its own; runs alone, to be measured"
  elseif cap then
    what = string.format("waits for a GPU of its own; runs alone with %.0f %% of it, to be measured", tonumber(cap) * 100)
  end
  if option.guest then
    what = "waits as a guest for a GPU that nobody else needs, of its own or shared; where somebody needs it, it is ended and started "
      .. "again from the beginning"
    if text_of(config.guest_qos) then what = what .. "; in the QOS " .. config.guest_qos .. " unless --qos names another" end
    if slowdown then what = what .. "; if shared, " .. limit end
  end
  local each = count > 1 and string.format("%.0f GPUs", count) or "a GPU"
  if nodes > 1 then what = string.format("waits for %s on each of %.0f nodes, which it shares with nobody", each, nodes)
  elseif count > 1 then what = string.format("waits for %s of one node", each) end
  return what .. alone_from(begin, now)
end

local SESSION_SENTENCE = "a GPU of its own, which guests may use while it is idle; they are sent away when it is not"

-- Whether somebody sits in front of it: salloc, srun, or a batch job that says so (a notebook that a portal submits).
local function is_session_of(job, option)
  return option ~= nil and (not job.script or option.session == true)
end

-- Sends a job into a pool. `option`: nil where it did not ask for co-location. `begin`: before that Slurm does not start it. Gives why
-- it was left as it was; nil where it was sent.
local function send(job, pool, gpu, size, limit, option, begin)
  local digest = M.workload_digest(option and option.profile, job.name, job.script or "interactive")
  local devices = gpu.count > 1 and fallback_of(pool, gpu.count) or nil
  local is_guest = option ~= nil and option.guest
  local mark = render_mark(option, digest, job.partition, gpu, job.begin_time or 0, devices, node_count(job),
    is_session_of(job, option), is_guest and gets_guest_qos(job))
  if not mark then return "its partition or GRES names are too long or unusual to be remembered" end
  local failure = assign(job, plan_assignments(job, pool, gpu, size, limit, mark, begin, devices, is_guest))
  if failure then
    slurm.log_error("%s", "pillion.lua: assignment failed, job left as it was: " .. tostring(failure))
    return "something failed inside Pillion"
  end
  if begin > 0 then tell_submitted() end
  return nil
end

-- What keeps a session from being managed; nil for nothing. What it does is its user's from moment to moment: so it
-- is no guest, nothing is known of it by a name, and how much memory others have to leave it only its user can say.
local function why_no_session(job, option, gpu, nodes)
  local who, example = "an interactive job", "memory=16G"
  if job.script then who, example = "a session", "session,memory=16G" end
  if option.guest then return who .. " is no guest: it would be ended under its user's hands" end
  if option.cap or option.profile or option.slowdown or option.restart then
    return "of --colocate's settings " .. who .. " takes memory= and isolation= alone"
  end
  if gpu.count > 1 or nodes > 1 then return who .. " that others may join has one GPU; write --gres=gpu:1" end
  if not job.script and gpu.field ~= "node" then return "salloc and srun ask for GPUs by node here; write --gres=gpu:1" end
  if not option.memory_bytes then
    return "for others to join it while it is idle, say how much GPU memory it takes; write for example --colocate=" .. example
  end
  if (given(job.immediate) or 0) ~= 0 then return "it asks to start at once or not at all (--immediate)" end
  return nil
end

-- Whether an option of srun asks for GPUs; `before` is the word before it, of which it may be the value.
local function asks_for_gpus(word, before)
  if string.find(word, "^%-%-gpus") or string.find(word, "^%-%-ntasks%-per%-gpu") or string.find(word, "^%-G%d") then return true end
  local is_list = string.find(word, "^%-%-gres=") or string.find(word, "^%-%-tres%-per%-task=")
  if is_list or before == "--gres" or before == "--tres-per-task" then return string.find(word, "gpu", 1, true) ~= nil end
  return before == "-G" and string.find(word, "^%d") ~= nil
end

-- Whether a step of the script asks for GPUs. The options of an srun end where its program begins: at the first word that is neither one
-- nor, after one without "=", its value. Each word is looked at once, however long a line is.
local function has_step_of_gpus(script)
  local lines = string.gsub(string.sub(script, 1, PREAMBLE_LENGTH_MAX), "\\\n", " ")
  for line in string.gmatch(lines, "[^\n]+") do
    local before = nil -- the last word of an srun's options; nil outside of them
    for word in string.gmatch(line, "%S+") do
      if string.find(word, "^#") then break end
      local is_option = string.find(word, "^%-")
      if word == "srun" or string.find(word, "[/(`]srun$") then
        before = word
      elseif before and asks_for_gpus(word, before) then
        return true
      elseif before then
        local is_value = string.find(before, "^%-") and not string.find(before, "=", 1, true)
        before = (is_option or is_value) and word or nil
      end
    end
  end
  return false
end

-- What in the steps of its script keeps a job from having shards: there are no GPUs in it for a step, which would fail. nil for nothing.
local function why_no_step(job)
  if job.script and has_step_of_gpus(job.script) then
    return "a step in its script asks for GPUs; write plain srun, which has all GPUs of the job"
  end
  return nil
end

-- Those of the pools in which an agent stands behind some GPU: elsewhere nobody would decide on who sits in front of his job.
local function attended(pools)
  local open = {}
  for _, pool in ipairs(pools) do
    if (pool.open or 0) > 0 then open[#open + 1] = pool end
  end
  return open
end

-- Sends a job into one of these pools to wait there. Gives true and what was understood, or false and why it was left alone.
local function manage(job, part_list, option, pools, beat, now)
  local idle = why_idle(beat, now)
  if idle then return false, idle end
  if given(job.het_job_offset) then return false, "it is part of a heterogeneous job" end
  local gpu, no_gpu = find_gpu(job)
  if not gpu then return false, no_gpu end
  local unfit = why_unfit(job, gpu, option.guest) or (job.priority == 0 and "it is held" or nil) or why_no_step(job)
  if unfit then return false, unfit end
  local nodes, is_session = node_count(job), is_session_of(job, option)
  if is_session then
    local why = why_no_session(job, option, gpu, nodes)
    if why then return false, why end
    pools = attended(pools)
    if #pools == 0 then return false, "no GPU of the pool is looked after by Pillion at present" end
  end
  if (gpu.count > 1 or nodes > 1) and option.cap then return false, "cap= is for jobs of one GPU" end
  if option.guest then
    if gpu.count > 1 or nodes > 1 then return false, "a guest has one GPU" end
    if option.cap then return false, "a job with cap= is measured alone, and a guest makes room" end
    if job.requeue == 0 then return false, "a guest is started again where somebody needs its GPU; leave out --no-requeue" end
  end
  local names = named_partitions(job.partition, part_list)
  local size, no_size = sizes(job, gpu.count, beat.per_gpu[names[1]])
  if not size then return false, no_size end
  for _, name in ipairs(names) do
    -- A partition that the user cannot use: Slurm will say so better.
    if not part_list[name] then return false, "it names a partition that is not open to you" end
    if has_bit(part_list[name].flags, 2 ^ 6) then return false, "its partition is exclusive to one user a node" end
  end
  local limit = time_limit(job, names, part_list)
  if not limit then return false, "its time limit depends on its partition; write --time" end
  -- DefaultTime=0 makes it compulsory, and Slurm refuses a job without.
  if limit.minutes == 0 then return false, "its partition demands a time limit; write --time" end
  local pool, no_pool = choose_pool(job, gpu, size, limit, option, pools, part_list)
  if not pool then return false, no_pool end
  local bound = is_session and math.min(beat.bound, SESSION_BOUND_SECONDS) or beat.bound
  local begin = math.max(job.begin_time or 0, now + bound)
  local sentence = is_session and SESSION_SENTENCE .. (job.script and alone_from(begin, now) or "")
    or understood(option, beat, gpu.count, nodes, begin, now)
  local why = send(job, pool, gpu, size, limit_in(part_list[pool.partition], limit), option, begin)
  return not why, why or sentence
end

-- Jobs of a pool partition that do not ask for co-location -----------------------------------------------------------------

-- What keeps it from the pool; nil for nothing.
local function why_not_plain(job, gpu, size, pool, part, named_count)
  if named_count > 1 then return "it names other partitions besides" end
  if given(job.het_job_offset) then return "it is part of a heterogeneous job" end
  local unfit = why_unfit(job, gpu) or why_no_step(job)
  if unfit then return unfit end
  if not job.script and gpu.field ~= "node" then
    return "salloc and srun ask for GPUs by node here; write --gres=gpu:N"
  end
  local small = why_too_small(job, gpu, size, pool, part)
  return small and "the partition " .. small or nil
end

-- Lets a job into the pool that its user sent there without asking for co-location: with whole GPUs, which nobody shares. Where
-- nobody waits, or nobody of ours is there to decide, it has no begin time: Slurm starts it as it starts any job. `names`: its
-- partitions. Gives true, or false and perhaps why not.
local function admit_plain(job, part_list, names, pool, beat, now)
  if not pool.waiting then return false end
  local gpu, no_gpu, is_without = find_gpu(job)
  -- It has no part in what is shared.
  if is_without and (given(job.shared) or slurm.JOB_SHARED_OK) == slurm.JOB_SHARED_OK then return true end
  if not gpu then return false, no_gpu end
  local size, no_size = sizes(job, gpu.count, beat.per_gpu[pool.partition])
  if not size then return false, no_size end
  local why = why_not_plain(job, gpu, size, pool, part_list[pool.partition] or {}, #names)
  if why then return false, why end
  local begin = job.begin_time or 0
  -- Where nobody says whether all are of the model, the planner keeps to it, and Slurm would not.
  local is_in_turn = pool.waiting > 0 or (gpu.kind and not pool.some_types)
  if is_in_turn and not why_idle(beat, now) then begin = math.max(begin, now + beat.bound) end
  why = send(job, pool, gpu, size, nil, nil, begin)
  return not why, why
end

-- Counts a job that names a pool and says nothing of co-location as one that asked for it there, where the site wants that. Only for what
-- can come of it anywhere: jobs of several GPUs are left to `admit_plain` where that takes them. Nobody is moved to
-- a partition that he did not name. Gives true and what was understood; or false, and why not where it was tried.
local function share_by_default(job, part_list, names, pool, beat, now)
  if not pool.shares then return false end
  if #names > 1 then return false, "it names other partitions besides" end
  if not job.script then return false, "only batch jobs (sbatch) are co-located where nobody asks for it" end
  local gpu = find_gpu(job)
  local may_share = gpu and gpu.count == 1 and node_count(job) == 1
  if pool.waiting and not may_share then return false end
  return manage(job, part_list, { share = true }, { pool }, beat, now)
end

-- Guards -------------------------------------------------------------------------------------------------------------

-- Whether any TRES field names this GRES (`shard`, `gpu`), in whatever way it is written.
local function names_gres(job, name)
  for _, field in ipairs(TRES_FIELDS) do
    local value = job[field]
    if value then
      for word in string.gmatch(string.lower(value), "[%w_.-]+") do
        if word == name then return true end
      end
    end
  end
  return false
end

local SHARD_REFUSAL = "shards are given out by Pillion alone; ask for a whole GPU with --gres=gpu:1, and write "
  .. "--colocate if the job may share it"

-- `why`: what keeps the job from having whole GPUs there, where the site lets such jobs in.
local function pool_refusal(name, why)
  if why then
    return "partition " .. name .. " is managed by Pillion, and this job cannot be in it: " .. why
      .. "; or name another partition"
  end
  return "partition " .. name .. " is managed by Pillion; write --colocate and ask for GPUs of one node (such as "
    .. "--gres=gpu:1) in a batch job, or name another partition"
end

-- Submit -------------------------------------------------------------------------------------------------------------

-- What is said of co-location for this job, and where: its option; or SBATCH_COLOCATE, which is for batch jobs with GPUs that carry no
-- option of their own. nil for nothing.
local function wish_of(job)
  local value = spank_value(job, OPTION_PREFIX)
  if value then return value, "--colocate" end
  value = job.script and text_of(spank_value(job, VARIABLE_HINT))
  if not value then return nil end
  local ok, _, _, is_without = pcall(find_gpu, job)
  if not ok or is_without then return nil end
  return value, "SBATCH_COLOCATE"
end

-- Lets a job of a pool's partition in that did not ask for co-location, or did in vain. `wish`: what was said of it. Gives whether, and
-- what its user is told: what was understood; or perhaps what stands in the way.
local function admit(job, part_list, names, pool, wish, beat, now)
  local why
  if not wish then
    local ok, shared, sentence = pcall(share_by_default, job, part_list, names, pool, beat, now)
    if ok and shared then
      return true, "partition " .. pool.partition .. " lets jobs share GPUs unless they say --colocate=no: " .. sentence
    end
    if not ok then slurm.log_error("%s", "pillion.lua: " .. tostring(shared)) end
    why = ok and not pool.waiting and sentence or nil
  end
  local admitted, reason = admit_plain(job, part_list, names, pool, beat, now)
  return admitted, reason or why
end

-- For slurm_job_submit. Gives slurm.SUCCESS, or slurm.ERROR having told the user why.
function M.submit(job, part_list, uid)
  local trusted = is_trusted(uid)
  if not trusted and names_gres(job, "shard") then
    note("submission refused", uid, "shards")
    say("not submitted: " .. SHARD_REFUSAL)
    return slurm.ERROR
  end
  local beat = M.read_heartbeat()
  local value, source = wish_of(job)
  if value then
    local option, invalid = M.parse_option(value)
    if not option then
      note("submission refused", uid, "option")
      say("not submitted: " .. string.gsub(invalid, "^%-%-colocate", source))
      return slurm.ERROR
    end
    if option.share then
      local ok, managed, reason = pcall(manage, job, part_list, option, beat and beat.pools, beat, os.time())
      if ok and managed then
        say((source == "--colocate" and "" or "by " .. source .. ", ") .. reason)
        return slurm.SUCCESS
      end
      if not ok then
        slurm.log_error("%s", "pillion.lua: " .. tostring(managed))
        reason = "something failed inside Pillion"
      end
      note("submission left alone", uid, reason)
      say("this job is left as you wrote it and shares no GPU" .. (source == "--colocate" and "" or ", whatever " .. source .. " says")
        .. ": " .. reason)
    end
  end
  local names = named_partitions(job.partition, part_list)
  local name = pool_among(names, beat)
  if not name or trusted then return slurm.SUCCESS end
  local pool, why = pool_of(beat, name), nil
  if pool then
    local ok, admitted, reason = pcall(admit, job, part_list, names, pool, value, beat, os.time())
    if ok and admitted then
      if reason then say(reason) end
      return slurm.SUCCESS
    end
    if not ok then slurm.log_error("%s", "pillion.lua: " .. tostring(admitted)) end
    why = ok and reason or not ok and "something failed inside Pillion" or nil
  end
  note("submission refused", uid, why or "pool")
  say("not submitted: " .. pool_refusal(name, why))
  return slurm.ERROR
end

-- Update -------------------------------------------------------------------------------------------------------------

-- Whether a change says where, when and with which GPUs the job starts.
local function says_how_it_starts(job)
  for _, field in ipairs({ "min_nodes", "max_nodes", "num_tasks", "shared" }) do
    if given(job[field]) then return true end
  end
  for _, field in ipairs(TRES_FIELDS) do
    if job[field] ~= nil then return true end
  end
  return job.req_nodes ~= nil or job.reservation ~= nil or (job.begin_time or 0) ~= 0
end

-- What a user may not change of a managed job while it stays managed: what it asks for, when and where. Comment is in the
-- list because a job whose words are changed on the way is no longer the job that was submitted.
local function ends_management(job, moves)
  for _, field in ipairs({ "cpus_per_task", "min_cpus", "pn_min_cpus" }) do
    if given(job[field]) then return true end
  end
  for _, field in ipairs({ "exc_nodes", "comment", "features" }) do
    if job[field] ~= nil then return true end
  end
  return moves or says_how_it_starts(job) or job.min_mem_per_node ~= nil or job.min_mem_per_cpu ~= nil
end

-- Slurm applies an update field by field, and keeps what it has applied where it refuses a later one; the partition comes
-- before the GRES. What it may refuse in between would leave a job with shards outside the pool, held for ever. So these do
-- not go into one update with leaving the pool (docs/slurm.md has the order). Deadline, CoreSpec, ThreadSpec and
-- ClusterFeatures belong here too, but lua is not shown them: what they leave, the scheduler and `pillion rescue` mend.
local REFUSED_LATE = {
  text = {
    "array_inx", "batch_features", "burst_buffer", "clusters", "cpus_per_tres", "dependency", "extra", "features",
    "mem_per_tres", "prefer", "req_nodes", "tres_bind", "tres_freq", "tres_per_job", "tres_per_socket", "tres_per_task",
    "wckey",
  },
  bits32 = { "max_nodes", "min_nodes", "nice", "priority", "site_factor", "time_limit", "time_min" },
  bits16 = { "contiguous", "ntasks_per_node", "ntasks_per_socket", "ntasks_per_tres", "reboot", "shared" },
}

-- Whether what is changed of the numbers of CPUs and tasks is in order: none of them 0, and the least number of CPUs not
-- above the greatest, where there is one (0 stands for none too).
local function are_counts_in_order(job, rec)
  local most = given(job.max_cpus) or given(rec.max_cpus)
  if most == 0 then most = nil end
  for _, field in ipairs({ "cpus_per_task", "num_tasks", "pn_min_cpus" }) do
    local count = given(job[field])
    if count and (count < 1 or most) then return false end
  end
  local least = given(job.min_cpus)
  return (least or 1) >= 1 and (not most or most >= (least or rec.min_cpus or 1))
end

-- Whether GRES are asked for of which nothing is left: Slurm applies those last of all, when all else may have been refused.
local function asks_no_gres(job)
  if not text_of(job.tres_per_node) then return false end
  for _, item in ipairs(parse_tres(job.tres_per_node) or {}) do
    if item.count > 0 then return false end
  end
  return true
end

-- Whether Slurm may refuse a part of this update when it has moved the job already.
local function may_be_halved(job, rec)
  -- Clearing one is never refused.
  for _, field in ipairs(REFUSED_LATE.text) do
    if text_of(job[field]) then return true end
  end
  for _, field in ipairs(REFUSED_LATE.bits32) do
    if job[field] ~= nil and job[field] ~= slurm.NO_VAL then return true end
  end
  for _, field in ipairs(REFUSED_LATE.bits16) do
    if job[field] ~= nil and job[field] ~= slurm.NO_VAL16 then return true end
  end
  return (job.end_time or 0) ~= 0 or not are_counts_in_order(job, rec) or asks_no_gres(job)
end

local function begins_as_mark(comment)
  return contains(MARK_PREFIXES, string.sub(comment, 1, #MARK_PREFIXES[1]))
end

-- The fields of a mark by name; nil for what is not one of ours.
local function parse_mark(comment)
  if not comment or not begins_as_mark(comment) or #comment > MARK_LENGTH_MAX then return nil end
  local mark = {}
  for _, field in ipairs(split(comment, ";")) do
    local name, value = string.match(field, "^(%l+)=(.*)$")
    if name then mark[name] = value end
  end
  return mark
end

-- Whether the job waits; its state carries flags above the lowest byte.
local function is_pending(rec)
  return (rec.job_state or 0) % 256 == 0
end

-- The mark of a managed job; nil for any other job.
local function managed_mark(rec, beat)
  return is_pending(rec) and is_pool(rec.partition, beat) and parse_mark(rec.admin_comment) or nil
end

-- Where a job goes that leaves the pool: where its user sends it now, or sent it at first. nil if that is a pool itself.
local function way_out(job, mark, moves, part_list, beat)
  if moves then return job.partition end
  local outside = {}
  for _, name in ipairs(named_partitions(mark.part, part_list)) do
    if not is_pool(name, beat) then outside[#outside + 1] = name end
  end
  return text_of(table.concat(outside, ","))
end

-- How `scontrol` calls the job.
local function name_of(rec)
  local array, task = rec.array_job_id or 0, given(rec.array_task_id)
  if array == 0 then return string.format("%.0f", rec.job_id or 0) end
  return string.format(task and "%.0f_%.0f" or "%.0f", array, task)
end

-- An update of a whole array comes here once for each of its records, with one description for all of them: what is written into it for
-- one record would be done to those after it, which may be in nobody's care. So it is remembered, and taken out again before the next.
local spread -- {array, uid, at, description, begin_time, fields = { { name, value, before } }}
-- All records of an array are done in one hold of slurmctld's lock; a directory that is asked for a user may take its time.
local SPREAD_SECONDS_MAX = 30
-- Slurm takes these out of the description itself.
local TAKEN_OUT_BY_SLURM = { "tres_per_node", "qos" }

-- The description of an update by its address in slurmctld; nil where this Slurm does not show it.
local function address_of(job)
  local ok, address = pcall(function() return getmetatable(job)._job_desc end)
  return ok and address or nil
end

-- Writes into an update of one record, as `assign`, and remembers that where it is one of an array.
local function assign_for_record(job, rec, plan, uid, now)
  local failure, fields = assign(job, plan)
  if not failure and (rec.array_job_id or 0) ~= 0 then
    spread = {
      array = rec.array_job_id, uid = uid, at = now, description = address_of(job), begin_time = job.begin_time, fields = fields,
    }
  end
  return failure
end

-- Takes out of an update what was written into it for an earlier record of the same array: all of it or nothing. An address is used again
-- for the next update, in which its user may have written one of these himself; hardly all of them, and the begin time to the second.
local function take_out_spread(job, rec, uid, now)
  local last = spread
  spread = nil
  local is_same = last and last.array == rec.array_job_id and last.uid == uid and now - last.at <= SPREAD_SECONDS_MAX
    and last.description == address_of(job) and last.begin_time == job.begin_time
  if not is_same then return end
  for _, field in ipairs(last.fields) do
    if job[field[1]] ~= field[2] and not contains(TAKEN_OUT_BY_SLURM, field[1]) then return end
  end
  for _, field in ipairs(last.fields) do
    local name, value, before = field[1], field[2], field[3]
    if job[name] == value and value ~= before then job[name] = before end
  end
end

-- Takes a job out of management: with what its user changes now, and otherwise as it was submitted. Its GPUs, of one node, are
-- asked for by node, whichever option they were asked for with: Slurm lets nobody clear tres_per_node in an update.
local function release_to_user(job, rec, mark, target, uid, now)
  local plan = {}
  if job.partition ~= target then plan[1] = { field = "partition", value = target, none = "" } end
  if not text_of(job.tres_per_node) then
    local others = text_of(mark.other) and ",gres/" .. string.gsub(mark.other, ",", ",gres/") or ""
    plan[#plan + 1] = { field = "tres_per_node", value = "gres/" .. mark.gres .. others, none = "" }
  end
  if (job.begin_time or 0) == 0 then
    plan[#plan + 1] = { field = "begin_time", value = math.max(tonumber(mark.begin) or 0, now), none = 0 }
  end
  -- It is no guest any more: under the guests' QOS it would wait where that is not admitted, or behind all others. Which QOS is its own
  -- is shown for its user's default account only.
  local is_of_default = not text_of(rec.account) or rec.account == job.default_account
  local has_guests = mark.gq and rec.qos == config.guest_qos
  local own_qos = has_guests and is_of_default and not text_of(job.qos) and text_of(job.default_qos)
  if own_qos then plan[#plan + 1] = { field = "qos", value = own_qos, none = "" } end
  return assign_for_record(job, rec, plan, uid, now)
end

-- SUCCESS. Without accounting, slurmctld takes what an earlier system call left in errno for the outcome of a change of
-- partition ("Resource temporarily unavailable"). Reading the user's name looks the user up, which leaves errno at 0; that may
-- ask a directory, so it is done for such a change only.
local function passed(job)
  pcall(function() return job.partition and job.user_name end)
  return slurm.SUCCESS
end

-- A change by its user, or by whoever else is not trusted.
local function modify_for_user(job, rec, part_list, uid)
  if names_gres(job, "shard") then
    note("change refused", uid, "shards")
    say("not changed: " .. SHARD_REFUSAL)
    return slurm.ERROR
  end
  local beat = M.read_heartbeat()
  local mark = managed_mark(rec, beat)
  local moves = text_of(job.partition) ~= nil and job.partition ~= rec.partition
  local pool = moves and pool_among(split(job.partition, ","), beat)
  if pool then
    note("change refused", uid, "pool")
    say("not changed: " .. pool_refusal(pool))
    return slurm.ERROR
  end
  local waits_in = not mark and not moves and is_pending(rec) and pool_among(split(rec.partition or "", ","), beat)
  if waits_in and (names_gres(job, "gpu") or given(job.shared)) then
    -- It came in without GPUs, or nobody knows with which: what it takes now would be beside those that share.
    note("change refused", uid, "plain")
    say("not changed: partition " .. waits_in .. " is managed by Pillion, where GPUs are asked for at the submission; cancel the job "
      .. "and submit it again")
    return slurm.ERROR
  end
  if not mark then return passed(job) end
  -- Between its release and its start it is under the rules that were decided on.
  local changes_rules = mark.lease and mark.on and (text_of(job.account) or text_of(job.qos))
  if not changes_rules and not ends_management(job, moves) then return passed(job) end
  if mark.lease then
    -- It is pinned to a node, and lua cannot unpin it.
    note("change refused", uid, "released")
    say("not changed: this job is about to start on a shared GPU; try again in a minute, or cancel it")
    return slurm.ERROR
  end
  if mark.plain and not moves then
    -- That is in the mark, which he cannot write: for that he submits it again.
    if not says_how_it_starts(job) then return passed(job) end
    note("change refused", uid, "plain")
    say("not changed: partition " .. rec.partition .. " is managed by Pillion, where this is fixed at the submission; cancel the "
      .. "job and submit it again, or send it to another partition")
    return slurm.ERROR
  end
  local target = way_out(job, mark, moves, part_list, beat)
  if target and may_be_halved(job, rec) then
    note("change refused", uid, "halves")
    say("not changed: this job waits for a shared GPU, and Slurm may refuse a part of this change when it has moved the job "
      .. "already; take it out first (scontrol update JobId=" .. name_of(rec) .. " Partition=" .. target
      .. "), and then make this change")
    return slurm.ERROR
  end
  local failure = not (target and text_of(mark.gres)) and "where it came from is not known"
    or release_to_user(job, rec, mark, target, uid, os.time())
  if failure then
    note("change refused", uid, "failed")
    slurm.log_error("%s", "pillion.lua: a job could not leave the pool: " .. tostring(failure))
    say("not changed: this job waits for a shared GPU; cancel it and submit it again with --colocate=no")
    return slurm.ERROR
  end
  -- Before Slurm has looked at the change.
  say("if Slurm takes this change, the job does not wait for a shared GPU any more and goes back to what you submitted, with it")
  return passed(job)
end

-- The fence ----------------------------------------------------------------------------------------------------------

-- Every update of ours (the scheduler's, and that of `pillion rescue`) to a waiting job carries the mark that the job is to
-- have, and is a compare-and-set: what it presupposes follows from that mark, and it is compared here with the job as it is,
-- under slurmctld's lock (docs/decisions/0012-a-fence-under-slurms-lock.md). What was true when the scheduler looked need not
-- be true now: its user may have held the job, or taken it out; another scheduler may have acted.

local NOTHING_ASKED = "nothing was asked"

-- The lease that a mark carries, as an undo names it.
local function lease_of(mark)
  return mark.lease or "0"
end

-- Where no pool is known, neither from the heartbeat nor configured, every partition counts as one: `pillion rescue` has to
-- work then.
local function counts_as_pool(name, beat)
  if #config.pools == 0 and #(beat and beat.pools or {}) == 0 then return true end
  return is_pool(name, beat)
end

-- What a change of a job that waits without a lease presupposes.
local function why_not_waiting(old, rec)
  if old.lease then return "the job has a lease" end
  if old.alone then return "the job is to run alone" end
  if (rec.priority or 0) <= 0 then return "the job is held" end
  return nil
end

-- What a decision presupposes of a job where the site's rules are not the same for all: crates/scheduler/src/job_rules.rs.
function M.decided_on(rec)
  return M.digest((rec.account or "") .. "\n" .. (rec.qos or "") .. "\n" .. (rec.partition or ""))
end

-- A release.
local function why_no_release(new, old, rec, now)
  local why = why_not_waiting(old, rec)
  if why then return why end
  -- Some release of Slurm may not show it.
  if rec.restart_cnt ~= nil and rec.restart_cnt ~= tonumber(new.r or "") then return "the job was started meanwhile" end
  -- What the site lets be done with a job may hang on these.
  if new.on and new.on ~= M.decided_on(rec) then return "its account, QOS or partition is not what was decided on" end
  local decided = tonumber(new.lease)
  -- Whoever was stopped between deciding and acting does not know what happened since.
  if not decided or math.abs(now - decided) > LEASE_SECONDS then return "the release is out of date" end
  return nil
end

-- An undo that lets a job on several nodes go: it is decided as a release is. `new.go`: when, and its restart count then.
local function why_not_let_go(new, rec, now)
  local decided, restarts = string.match(new.go, "^(%d+):(%d+)$")
  if (rec.priority or 0) <= 0 then return "the job is held" end
  if rec.restart_cnt ~= nil and rec.restart_cnt ~= tonumber(restarts or "") then return "the job was started meanwhile" end
  decided = tonumber(decided or "")
  if not decided or math.abs(now - decided) > LEASE_SECONDS then return "it was let go too long ago" end
  return nil
end

-- Why an update of ours does not fit the job as it is; nil if it does.
local function why_fenced(job, rec, now)
  local new, old = parse_mark(job.admin_comment), parse_mark(rec.admin_comment)
  if not new then return "its mark cannot be read" end
  -- A guest that was started again waits once more: it names the lease that it takes back.
  local is_once_more = new.guest and new.u and new.u ~= (old and old.u) and not (new.lease or new.alone or new.left)
  local is_renewal = not (new.lease or new.alone or new.left or is_once_more)
  local begins = (job.begin_time or 0) ~= 0
  -- How the scheduler learns that this module is loaded.
  if is_renewal and not begins and job.tres_per_node == nil and job.req_nodes == nil then return NOTHING_ASKED end
  if not is_pending(rec) then return "the job does not wait" end
  if not old or not text_of(new.w) or new.w ~= old.w then return "the job carries another mark" end
  if old.left then return "the job was given back" end
  local beat = M.read_heartbeat()
  if new.left then
    if lease_of(old) ~= new.u then return "the job carries another lease" end
    return pool_among(split(rec.partition or "", ","), beat) and "the job is in a pool" or nil
  end
  if not counts_as_pool(rec.partition, beat) then return "the job is not in a pool" end
  -- An undo takes pin and lease back, also of a job that is held; the hold stays.
  if new.alone then
    if lease_of(old) ~= new.u then return "the job carries another lease" end
    return new.go and new.go ~= old.go and why_not_let_go(new, rec, now) or nil
  end
  -- So does this of a job that ran out of device memory: it waits for a decision once more, with more memory.
  if new.again ~= old.again then
    if new.lease or old.again or not old.lease or old.lease ~= new.again then return "the job carries another lease" end
    return not begins and "no begin time was asked" or nil
  end
  if is_once_more then
    if old.alone or not old.guest or lease_of(old) ~= new.u then return "the job carries another lease" end
    return not begins and "no begin time was asked" or nil
  end
  if new.lease then return why_no_release(new, old, rec, now) end
  return why_not_waiting(old, rec) or (not begins and "no begin time was asked" or nil)
end

-- Until when jobs were put off, by id: {restarts, until_epoch}. Whoever says it once more waits no longer for that.
local put_off = {}

local function put_off_until(rec, restarts, now)
  for id, one in pairs(put_off) do
    if one.until_epoch + 3600 < now then put_off[id] = nil end
  end
  local known = put_off[rec.job_id or 0]
  if known and known.restarts == restarts then return known.until_epoch end
  put_off[rec.job_id or 0] = { restarts = restarts, until_epoch = now + TAKE_BACK_SECONDS }
  return now + TAKE_BACK_SECONDS
end

-- A job that was requeued has the shards and the pin of its earlier start until the scheduler takes them back, for which Slurm leaves it
-- two minutes. An admin who lifts those (`StartTime=now`) would start it there without a decision, perhaps beside a job that it may not
-- be beside; so some of them are left. Where nobody would take its place back, it starts when he says. While it still completes Slurm
-- itself gives it the two minutes anew when it has, unless it is to begin later than that moment.
local function wait_for_take_back(job, rec, uid, now)
  local begin, mark = job.begin_time or 0, parse_mark(rec.admin_comment)
  if begin == 0 or begin >= now + TAKE_BACK_SECONDS or not is_pending(rec) then return end
  if has_bit(rec.job_state, COMPLETING) and begin <= now then return end
  -- Who says besides where it starts, or takes the mark away, takes it in his own hands.
  if job.admin_comment ~= nil or job.tres_per_node ~= nil or job.req_nodes ~= nil then return end
  local restarts = tonumber(rec.restart_cnt)
  if not mark or not mark.lease or not restarts or restarts == tonumber(mark.r or "") then return end
  local beat = M.read_heartbeat()
  local partition = text_of(job.partition) or rec.partition
  if why_idle(beat, now) or partition ~= rec.partition or not is_pool(partition, beat) then return end
  local latest = put_off_until(rec, restarts, now)
  if begin >= latest then return end
  local plan = { { field = "begin_time", value = latest, none = 0 } }
  if assign_for_record(job, rec, plan, uid, now) then return end
  say("this job has the place of its earlier start still; it starts when Pillion has taken that back, in "
    .. string.format("%.0f", latest - now) .. " s at the latest")
end

-- An update by root, by SlurmUser or by whoever is trusted besides. An admin's own passes, whatever fails in here.
local function modify_for_trusted(job, rec, uid)
  local is_read, comment = pcall(function() return job.admin_comment end)
  local is_ours = is_read and type(comment) == "string" and begins_as_mark(comment)
  if not is_ours then
    local ok, why = pcall(wait_for_take_back, job, rec, uid, os.time())
    if not ok then slurm.log_error("%s", "pillion.lua: " .. tostring(why)) end
    return passed(job)
  end
  local ok, why = pcall(why_fenced, job, rec, os.time())
  if ok and not why then return passed(job) end
  if not ok then
    slurm.log_error("%s", "pillion.lua: " .. tostring(why))
    why = "something failed inside Pillion"
  end
  if why ~= NOTHING_ASKED then note("update fenced", uid, why) end
  -- Our own programs look for the first two words.
  say("fence 1: " .. why)
  return slurm.ERROR
end

-- For slurm_job_modify. Gives slurm.SUCCESS, or slurm.ERROR having told why.
function M.modify(job, rec, part_list, uid)
  pcall(take_out_spread, job, rec, uid, os.time())
  if is_trusted(uid) then return modify_for_trusted(job, rec, uid) end
  return modify_for_user(job, rec, part_list, uid)
end

return M
