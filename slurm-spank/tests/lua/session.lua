-- Interactive jobs (salloc, srun, and batch jobs with `session`) with --colocate: they wait a moment for a device that guests may come
-- to, or are left as they are.

local S = dofile("support.lua")
local pillion = S.pillion

local function beat(open, age, mode, ...)
  S.beat(age, mode, S.POOL, S.SHAPE, open and "open=shared " .. open or nil, ...)
end

-- Submits what salloc or srun would, and gives the answer and what became of it.
local function submit(option, fields)
  local all = { tres_per_node = "gres/gpu:1" }
  for name, value in pairs(fields or {}) do all[name] = value end
  local job, values, writes = S.batch(all, option)
  values.script = nil
  S.said, S.noted = {}, {}
  return pillion.submit(job, S.partitions(), S.ALICE), values, writes()
end

S.test("it waits for a decision, twenty seconds at most", function()
  beat(4)
  local now = os.time()
  local answer, values = submit("memory=16G", { name = "interactive" })
  S.equal(answer, slurm.SUCCESS, tostring(S.said[1]))
  S.equal(values.partition, "shared")
  S.equal(values.tres_per_node, "gres/shard:100", "what Slurm starts by itself is alone")
  assert(values.begin_time >= now + 20 and values.begin_time <= now + 22, values.begin_time)
  assert(string.find(values.admin_comment, "^pillion1;w=%x+;m=16384;session=1;part=;field=node;gres=gpu:1;"), values.admin_comment)
  S.contains(S.said[1], "a GPU of its own, which guests may use while it is idle")
  S.equal(values.requeue, 65534, "as it was")
end)

S.test("a wall between users may be asked for", function()
  beat(1)
  local answer, values = submit("isolation=hard,memory=1G")
  S.equal(answer, slurm.SUCCESS)
  S.contains(values.admin_comment, ";i=hard;session=1;")
end)

S.test("of a shorter bound it waits no longer than that", function()
  S.write_heartbeat(string.format("pillion1 epoch=%.0f bound=7 mode=active\n%s\nopen=shared 1\n", os.time(), S.POOL))
  local now = os.time()
  local _, values = submit("memory=16G")
  assert(values.begin_time >= now + 7 and values.begin_time <= now + 9, values.begin_time)
end)

S.test("a day for which it was asked is its user's", function()
  beat(4)
  local later = os.time() + 5000
  local _, values = submit("memory=16G", { begin_time = later })
  S.equal(values.begin_time, later)
end)

local LEFT = {
  ["nothing said of memory"] = { "(null)", {}, "say how much GPU memory it takes" },
  ["guest"] = { "guest,memory=1G", {}, "is no guest" },
  ["cap"] = { "cap=0.5,memory=1G", {}, "takes memory= and isolation= alone" },
  ["profile"] = { "profile=x,memory=1G", {}, "takes memory= and isolation= alone" },
  ["promise"] = { "max-slowdown=1.1,memory=1G", {}, "takes memory= and isolation= alone" },
  ["restart"] = { "restart=yes,memory=1G", {}, "takes memory= and isolation= alone" },
  ["two GPUs"] = { "memory=1G", { tres_per_node = "gres/gpu:2" }, "has one GPU; write --gres=gpu:1" },
  ["two nodes"] = { "memory=1G", { min_nodes = 2, max_nodes = 2 }, "has one GPU; write --gres=gpu:1" },
  ["--gpus"] = { "memory=1G", { tres_per_node = "", tres_per_job = "gres/gpu:1" }, "ask for GPUs by node here" },
  ["no GPU"] = { "memory=1G", { tres_per_node = "" }, "asks for no GPU" },
  ["-w"] = { "memory=1G", { req_nodes = "n1" }, "names its nodes" },
  ["--immediate"] = { "memory=1G", { immediate = 1 }, "to start at once or not at all" },
}
for name, case in pairs(LEFT) do
  S.test("left as it is: " .. name, function()
    beat(4)
    local answer, values, writes = submit(case[1], case[2])
    S.equal(answer, slurm.SUCCESS)
    S.equal(writes, 0, name)
    S.equal(values.admin_comment, nil)
    S.contains(S.said[1], "this job is left as you wrote it and shares no GPU: ", name)
    S.contains(S.said[1], case[3], name)
  end)
end

S.test("where nobody would decide it starts at once, as its user wrote it", function()
  for _, open in ipairs({ 0, false }) do
    beat(open)
    local _, values, writes = submit("memory=16G")
    S.equal(writes, 0)
    S.equal(values.begin_time, 0)
    S.contains(S.said[1], "no GPU of the pool is looked after by Pillion at present")
  end
  beat(4, 31)
  local _, _, writes = submit("memory=16G")
  S.equal(writes, 0)
  S.contains(S.said[1], "Pillion's scheduler has stopped")
end)

S.test("in the pool itself it has the whole GPU at once then, where the site lets such jobs in", function()
  for _, age in ipairs({ 0, 31 }) do
    beat(0, age, "active", "plain=shared waiting=0")
    local answer, values = submit("memory=16G", { partition = "shared" })
    S.equal(answer, slurm.SUCCESS, tostring(S.said[#S.said]))
    S.equal(values.begin_time, 0)
    S.contains(values.admin_comment, ";plain=1")
  end
end)

S.test("who says nothing is not made to share", function()
  beat(4, 0, "active", "plain=shared waiting=0", "colocate=shared on")
  local answer, values = submit(false, { partition = "shared" })
  S.equal(answer, slurm.SUCCESS)
  S.equal(#S.said, 0)
  S.contains(values.admin_comment, ";plain=1")
end)

S.test("a variable for batch jobs says nothing of it", function()
  beat(4)
  local _, values, writes = submit(false, {
    spank_job_env_size = 1, spank_job_env = { [0] = "PILLION_SBATCH_COLOCATE=memory=16G" },
  })
  S.equal(writes, 0)
  S.equal(values.admin_comment, nil)
end)

-- Notebooks that a portal submits by sbatch -------------------------------------------------------------------------------

S.test("a batch job that says so is one: it is decided on as fast, and its script is its own", function()
  beat(4)
  local now = os.time()
  for _, fields in ipairs({ { tres_per_node = "gres/gpu:1" }, { tres_per_job = "gres/gpu:1" } }) do
    local job, values = S.batch(fields, "session,memory=16G")
    S.said = {}
    S.equal(pillion.submit(job, S.partitions(), S.ALICE), slurm.SUCCESS, tostring(S.said[1]))
    S.equal(values.tres_per_node, "gres/shard:100")
    assert(values.begin_time >= now + 20 and values.begin_time <= now + 22, values.begin_time)
    S.contains(values.admin_comment, ";m=16384;session=1;part=;")
    S.contains(S.said[1], "they are sent away when it is not; should Pillion stop, Slurm starts it alone from ")
  end
end)

S.test("it may be said by the variable, for a portal that changes no script", function()
  beat(4)
  local job, values = S.batch({
    tres_per_node = "gres/gpu:1", spank_job_env_size = 1,
    spank_job_env = { [0] = "PILLION_SBATCH_COLOCATE=session,memory=16G" },
  }, false)
  S.equal(pillion.submit(job, S.partitions(), S.ALICE), slurm.SUCCESS)
  S.contains(values.admin_comment, ";session=1;")
end)

local LEFT_BATCH = {
  ["nothing said of memory"] = { "session", "gres/gpu:1", "write for example --colocate=session,memory=16G" },
  ["guest"] = { "session,guest,memory=1G", "gres/gpu:1", "a session is no guest" },
  ["promise"] = { "session,max-slowdown=1.1,memory=1G", "gres/gpu:1", "a session takes memory= and isolation= alone" },
  ["two GPUs"] = { "session,memory=1G", "gres/gpu:2", "a session that others may join has one GPU" },
}
for name, case in pairs(LEFT_BATCH) do
  S.test("a batch job that is no session is left as it is: " .. name, function()
    beat(4)
    local job, values, writes = S.batch({ tres_per_node = case[2] }, case[1])
    S.said = {}
    S.equal(pillion.submit(job, S.partitions(), S.ALICE), slurm.SUCCESS)
    S.equal(writes(), 0)
    S.equal(values.admin_comment, nil)
    S.contains(S.said[1], case[3], name)
  end)
end

S.test("where nobody would decide a batch session starts at once too", function()
  beat(0)
  local job, values, writes = S.batch({ tres_per_node = "gres/gpu:1" }, "session,memory=16G")
  S.said = {}
  pillion.submit(job, S.partitions(), S.ALICE)
  S.equal(writes(), 0)
  S.equal(values.begin_time, 0)
  S.contains(S.said[1], "no GPU of the pool is looked after by Pillion at present")
end)

S.done()
