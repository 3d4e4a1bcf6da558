-- Jobs that say nothing in their option: where the site, or their user by SBATCH_COLOCATE, has said it for them.

local S = dofile("support.lua")
local pillion = S.pillion

local PLAIN, ON = "plain=shared waiting=0", "colocate=shared on"

-- Submits a job that names the pool. `said`: of its option, false for none; `variable`: of SBATCH_COLOCATE.
local function submit(fields, said, variable, fails_at)
  local all = { partition = "shared", tres_per_node = "gres/gpu:1" }
  for name, value in pairs(fields or {}) do all[name] = value or nil end
  if variable then
    all.spank_job_env, all.spank_job_env_size = { [0] = "PILLION_SBATCH_COLOCATE=" .. variable }, 1
    if said then
      all.spank_job_env[1], all.spank_job_env_size = "_SLURM_SPANK_OPTION_pillion_colocate=" .. said, 2
    end
  end
  local job, values, writes = S.batch(all, said or false, fails_at)
  if (fields or {}).script == false then values.script = nil end
  S.said, S.noted = {}, {}
  return pillion.submit(job, S.partitions(), S.ALICE), values, writes()
end

local function assert_shares(values, part)
  assert(string.find(values.admin_comment or "", "^pillion1;w=%x+;"), tostring(values.admin_comment))
  S.contains(values.admin_comment, ";part=" .. part .. ";")
  S.equal(values.partition, "shared")
  S.equal(values.tres_per_node, "gres/shard:100")
  assert(values.begin_time > os.time())
end

local function assert_whole(name, values)
  S.contains(values.admin_comment, ";plain=1", name)
  S.equal(#S.said, 0, name .. ": " .. tostring(S.said[1]))
end

S.test("a job that says nothing may share, and is told so with the way out", function()
  for _, plain in ipairs({ PLAIN, "" }) do
    S.beat(0, "active", S.POOL, S.SHAPE, plain, ON)
    local answer, values = submit()
    S.equal(answer, slurm.SUCCESS)
    assert_shares(values, "shared")
    S.equal(#S.said, 1)
    S.contains(S.said[1], "pillion: partition shared lets jobs share GPUs unless they say --colocate=no: waits for a GPU, of its own or ")
  end
end)

S.test("one word keeps it from that, in the option or in the variable", function()
  S.beat(0, "active", S.POOL, S.SHAPE, PLAIN, ON)
  for _, word in ipairs({ "no", "off" }) do
    local _, values = submit(nil, word)
    assert_whole("--colocate=" .. word, values)
    _, values = submit(nil, false, word)
    assert_whole("SBATCH_COLOCATE=" .. word, values)
  end
end)

S.test("nobody is made to share where nothing can come of it", function()
  S.beat(3, "active", S.POOL, S.SHAPE, PLAIN, ON)
  for name, fields in pairs({
    ["salloc"] = { script = false }, ["-H"] = { priority = 0 }, ["several GPUs"] = { tres_per_node = "gres/gpu:2" },
    ["several nodes"] = { min_nodes = 2, max_nodes = 2 },
  }) do
    local answer, values = submit(fields)
    S.equal(answer, slurm.SUCCESS, name .. ": " .. tostring(S.said[1]))
    assert_whole(name, values)
  end
  local answer, _, writes = submit({ tres_per_node = false })
  S.equal(answer, slurm.SUCCESS, "no GPU")
  S.equal(writes, 0, "no GPU")
  S.beat(0, "off", S.POOL, S.SHAPE, PLAIN, ON)
  answer = submit()
  S.equal(answer, slurm.SUCCESS)
  S.equal(#S.said, 0, "switched off, it is a plain job")
end)

S.test("what would fail in it, or lie elsewhere, is refused as it is without the default", function()
  for _, plain in ipairs({ PLAIN, "" }) do
    S.beat(0, "active", S.POOL, S.SHAPE, plain, ON)
    for reason, fields in pairs({
      ["a step in its script asks for GPUs"] = { script = "#!/bin/sh\nsrun -n1 --gpus=1 x\n" },
      ["names other partitions besides"] = { partition = "shared,gpu" },
      ["names its nodes"] = { req_nodes = "n1" },
    }) do
      local answer, values = submit(fields)
      S.equal(answer, slurm.ERROR, reason)
      S.equal(values.admin_comment, nil, reason)
      S.contains(S.said[1], "not submitted: partition shared is managed by Pillion, and this job cannot be in it", reason)
      S.contains(S.said[1], reason)
    end
  end
end)

S.test("where plain jobs are refused, all that could be co-located comes in", function()
  S.beat(0, "active", S.POOL, S.SHAPE, ON)
  local answer, values = submit({ tres_per_node = "gres/gpu:2" })
  S.equal(answer, slurm.SUCCESS)
  S.contains(S.said[1], "--colocate=no: waits for 2 GPUs of one node; should")
  assert(string.find(values.admin_comment, "^pillion2;w=%x+;part=shared;"), values.admin_comment)
  answer = submit({ script = false })
  S.equal(answer, slurm.ERROR)
  S.contains(S.said[1], "cannot be in it: only batch jobs (sbatch) are co-located")
  answer = submit(nil, "no")
  S.equal(answer, slurm.ERROR)
  S.contains(S.said[1], "is managed by Pillion; write --colocate")
  S.beat(100, "active", S.POOL, S.SHAPE, ON)
  answer = submit()
  S.equal(answer, slurm.ERROR)
  S.contains(S.said[1], "Pillion's scheduler has stopped")
end)

S.test("nobody comes into a pool that he did not name", function()
  S.beat(0, "active", "pool=other cpus=8 memory_mib=8000 features= gpu_types=", "shape=other g0", S.POOL, S.SHAPE, ON)
  local _, values = submit()
  assert_shares(values, "shared")
  local answer, untouched, writes = submit({ partition = "gpu" })
  S.equal(answer, slurm.SUCCESS)
  S.equal(writes, 0)
  S.equal(untouched.partition, "gpu")
end)

S.test("the default of one partition is none of another's", function()
  S.beat(0, "active", S.POOL, S.SHAPE, PLAIN, "colocate=other on")
  local answer, values = submit()
  S.equal(answer, slurm.SUCCESS)
  assert_whole("not on", values)
end)

S.test("SBATCH_COLOCATE is for batch jobs with GPUs that carry no option", function()
  for _, lines in ipairs({ { S.POOL, S.SHAPE }, { S.POOL, S.SHAPE, PLAIN, ON } }) do
    S.beat(0, "active", lines[1], lines[2], lines[3], lines[4])
    local answer, values = submit({ partition = "gpu" }, false, "max-slowdown=1.5,profile=bert")
    S.equal(answer, slurm.SUCCESS)
    assert_shares(values, "gpu")
    S.contains(values.admin_comment, ";s=1.5;")
    S.contains(S.said[1], "pillion: by SBATCH_COLOCATE, waits for a GPU, of its own or shared; if shared, at most 50 % slower")
    -- The option goes before it, both ways.
    _, values = submit({ partition = "gpu" }, "no", "yes")
    S.equal(values.admin_comment, nil)
    _, values = submit({ partition = "gpu" }, "max-slowdown=1.1", "no")
    assert_shares(values, "gpu")
    for name, fields in pairs({ ["no GPU"] = { tres_per_node = false }, ["salloc"] = { script = false } }) do
      fields.partition = "gpu"
      local writes
      answer, _, writes = submit(fields, false, "yes")
      S.equal(answer, slurm.SUCCESS, name)
      S.equal(writes, 0, name)
      S.equal(#S.said, 0, name)
    end
  end
  -- Not managed: as its user wrote it, with the reason.
  S.beat()
  local answer, values = submit({ partition = "gpu", req_nodes = "n1" }, false, "yes")
  S.equal(answer, slurm.SUCCESS)
  S.equal(values.admin_comment, nil)
  S.contains(S.said[1], "shares no GPU, whatever SBATCH_COLOCATE says: it names its nodes")
end)

S.test("a variable that cannot be read is refused by its name, where it counts", function()
  S.beat()
  local answer = submit({ partition = "gpu" }, false, "maybe")
  S.equal(answer, slurm.ERROR)
  S.contains(S.said[1], "pillion: not submitted: SBATCH_COLOCATE: 'maybe' is not allowed")
  S.contains(S.noted[1], "submission refused uid=2001 why=option")
  S.equal((submit({ partition = "gpu", tres_per_node = false }, false, "maybe")), slurm.SUCCESS, "of a job without GPUs")
  S.equal((submit({ partition = "gpu" }, false, "")), slurm.SUCCESS, "an empty one is none")
  S.equal(#S.said, 0)
end)

S.test("a write that fails leaves the job to the rules for plain ones", function()
  for at = 1, 2 do
    S.beat(0, "active", S.POOL, S.SHAPE, ON)
    local answer, values = submit(nil, false, nil, at)
    S.equal(answer, slurm.ERROR)
    S.equal(values.admin_comment, nil)
    S.equal(values.tres_per_node, "gres/gpu:1")
    S.contains(S.said[1], "something failed inside Pillion")
  end
end)

S.done()
