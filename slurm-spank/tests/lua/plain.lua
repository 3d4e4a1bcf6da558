-- Jobs of a pool partition that do not ask for co-location, where the site lets them in: whole GPUs, without a word to the user.

local S = dofile("support.lua")
local pillion = S.pillion

local function admits(waiting, age, mode)
  S.beat(age, mode, S.POOL, S.SHAPE, "plain=shared waiting=" .. (waiting or 0))
end

-- Submits a job that names the pool, and gives the answer and what became of it. `fields.script = false`: of salloc or srun.
local function submit(fields, uid, option)
  local all = { partition = "shared" }
  for name, value in pairs(fields) do all[name] = value end
  local job, values, writes = S.batch(all, option or false)
  if fields.script == false then values.script = nil end
  S.said, S.noted = {}, {}
  return pillion.submit(job, S.partitions(), uid or S.ALICE), values, writes()
end

local function assert_refused(name, reason, fields, option)
  local answer, values = submit(fields, nil, option)
  S.equal(answer, slurm.ERROR, name)
  S.equal(values.admin_comment, nil, name)
  S.contains(S.said[#S.said], "pillion: not submitted: partition shared is managed by Pillion", name)
  S.contains(S.said[#S.said], reason, name)
  S.contains(S.noted[#S.noted], "pillion: submission refused uid=2001 why=", name)
end

local ASKS = {
  ["--gres=gpu:1"] = { { tres_per_node = "gres/gpu:1" }, "field=node;gres=gpu:1" },
  ["--gpus=1"] = { { tres_per_job = "gres/gpu:1" }, "field=job;gres=gpu:1" },
  ["--gpus-per-task=1 -n1"] =
    { { tres_per_task = "gres/gpu=1", num_tasks = 1, tres_bind = "gres/gpu:per_task:1" }, "field=task;gres=gpu:1" },
  ["salloc --gres=gpu:1"] = { { tres_per_node = "gres/gpu:1", script = false }, "field=node;gres=gpu:1" },
  ["-H"] = { { tres_per_node = "gres/gpu:1", priority = 0 }, "field=node;gres=gpu:1" },
}
for name, case in pairs(ASKS) do
  S.test(name, function()
    admits()
    local answer, values = submit(case[1])
    S.equal(answer, slurm.SUCCESS, name .. ": " .. tostring(S.said[1]))
    S.equal(#S.said, 0, "nobody is told anything")
    S.equal(values.tres_per_node, "gres/shard:100", name)
    S.equal(values.tres_per_job, nil, name)
    S.equal(values.begin_time, 0, "nobody waits: Slurm starts it at once")
    S.equal(values.time_limit, 5, "as it was")
    S.contains(values.admin_comment, "part=shared;" .. case[2] .. ";other=;begin=0;plain=1", name)
    assert(string.find(values.admin_comment, "^pillion2;w=%x+;"), values.admin_comment)
  end)
end

S.test("several GPUs are named, and other GRES stay", function()
  admits()
  local _, values = submit({ tres_per_node = "gres/gpu:2,gres/lscratch:5" })
  assert(string.find(values.tres_per_node, "^gres/shard:g%d:100,gres/shard:g%d:100,gres/lscratch:5$"), values.tres_per_node)
  S.contains(values.admin_comment, ";plain=1")
  assert(string.find(values.admin_comment, ";at=g%d,g%d;"), values.admin_comment)
end)

S.test("on several nodes as well", function()
  admits(1)
  local _, values = submit({ tres_per_node = "gres/gpu:4", min_nodes = 2, max_nodes = 2 })
  S.contains(values.admin_comment, ";at=g0,g1,g2,g3;nodes=2;plain=1")
  assert(values.begin_time > os.time())
  admits(0)
  _, values = submit({ tres_per_node = "gres/gpu:1", min_nodes = 2, max_nodes = 2 })
  S.equal(values.tres_per_node, "gres/shard:100")
  S.contains(values.admin_comment, ";begin=0;nodes=2;plain=1")
  S.equal(values.begin_time, 0)
end)

S.test("where others wait it takes its turn", function()
  for _, fields in ipairs({ { tres_per_node = "gres/gpu:1" }, { tres_per_node = "gres/gpu:1", script = false } }) do
    admits(3)
    local _, values = submit(fields)
    local wait = values.begin_time - os.time()
    assert(wait > 590 and wait <= 600, "begins in " .. wait)
  end
  admits(0)
  local own = os.time() + 5000
  local _, values = submit({ tres_per_node = "gres/gpu:1", begin_time = own })
  S.equal(values.begin_time, own)
  S.contains(values.admin_comment, string.format(";begin=%.0f;plain=1", own))
end)

S.test("a model of GPU is asked for where all are of it", function()
  local typed = { tres_per_node = "gres/gpu:a100:1" }
  S.beat(0, "active", S.POOL, S.SHAPE, "models=shared", "plain=shared waiting=0")
  local _, values = submit(typed)
  S.equal(values.begin_time, 0)
  S.beat(0, "active", S.POOL, S.SHAPE, "models=shared a100,v100", "plain=shared waiting=0")
  assert_refused("several", "has GPUs of several models, and Slurm keeps no job to one of them by --gres: write -C a100 instead", typed)
  S.beat(0, "active", (string.gsub(S.POOL, "features=%S+", "features=")), S.SHAPE, "models=shared a100", "plain=shared waiting=0")
  assert_refused("no feature", "by --gres: leave the model out", typed)
  -- Where that is not told, Slurm would start it on any: it waits for a decision.
  admits(0)
  _, values = submit(typed)
  assert(values.begin_time > os.time())
end)

S.test("dead, frozen or switched off we keep nobody waiting", function()
  for _, case in ipairs({ { 31, "active" }, { 100000, "active" }, { 0, "off" }, { 0, "shadow" } }) do
    admits(3, case[1], case[2])
    local answer, values = submit({ tres_per_node = "gres/gpu:2" })
    S.equal(answer, slurm.SUCCESS, tostring(S.said[1]))
    S.equal(values.begin_time, 0)
    assert(string.find(values.tres_per_node, "^gres/shard:g%d:100,gres/shard:g%d:100$"), values.tres_per_node)
  end
end)

S.test("whom nodes are too few for Slurm tells itself", function()
  S.beat(0, "active", S.POOL, S.SHAPE, "nodes=shared count=2 cpus=8 memory_mib=8000 features=", "plain=shared waiting=0")
  S.equal(submit({ tres_per_node = "gres/gpu:1", exc_nodes = "m[1-9]" }), slurm.SUCCESS, tostring(S.said[1]))
  admits()
end)

S.test("what asks for no GPU has no part in what is shared", function()
  admits()
  local answer, values, writes = submit({ num_tasks = 4 })
  S.equal(answer, slurm.SUCCESS)
  S.equal(writes, 0)
  S.equal(values.admin_comment, nil)
  for name, shared in pairs({ ["--exclusive"] = 0, ["=user"] = 2, ["=mcs"] = 3, ["=topo"] = 4 }) do
    assert_refused(name, "asks for no GPU", { shared = shared })
  end
  S.equal(submit({ num_tasks = 4, shared = slurm.JOB_SHARED_OK }), slurm.SUCCESS)
end)

S.test("--colocate that is left alone has whole GPUs", function()
  admits()
  local answer, values = submit({ tres_per_node = "gres/gpu:2" }, nil, "cap=0.5")
  S.equal(answer, slurm.SUCCESS)
  S.contains(S.said[1], "cap= is for jobs of one GPU")
  S.contains(values.admin_comment, ";plain=1")
  answer, values = submit({ tres_per_node = "gres/gpu:1" }, nil, "yes")
  S.equal(answer, slurm.SUCCESS)
  assert(string.find(values.admin_comment, "^pillion1;"), "it may share: " .. values.admin_comment)
end)

S.test("what cannot be there is refused with its reason", function()
  admits()
  for name, case in pairs({
    ["-w"] = { "names its nodes", { req_nodes = "n1" } }, ["-N1-2"] = { "more than one node", { min_nodes = 1, max_nodes = 2 } },
    ["--gpus=2 -N2"] = { "write --gres=gpu:N", { tres_per_node = false, tres_per_job = "gres/gpu:2", min_nodes = 2, max_nodes = 2 } },
    ["--exclusive"] = { "--exclusive", { shared = 0 } }, ["--reservation"] = { "reservation", { reservation = "r" } },
    ["two partitions"] = { "names other partitions besides", { partition = "shared,gpu" } },
    ["too many"] = { "no nodes with so many GPUs", { tres_per_node = "gres/gpu:5" } },
    ["too many CPUs"] = { "too few CPUs", { min_cpus = 9 } }, ["het"] = { "heterogeneous", { het_job_offset = 1 } },
    ["a type"] = { "no GPU of that type", { tres_per_node = "gres/gpu:h200:1" } },
    ["srun --gpus=1 in the script"] = { "a step in its script asks for GPUs", { script = "#!/bin/sh\nsrun -n1 --gpus=1 x\n" } },
    ["srun \\ -G 1"] = { "a step in its script asks for GPUs", { script = "#!/bin/sh\nsrun -n1 \\\n  -G 1 x\n" } },
    ["srun --gres=gpu:1"] = { "a step in its script asks for GPUs", { script = "#!/bin/sh\n srun --gres=gpu:1 x\n" } },
    ["salloc --gpus=1"] = { "write --gres=gpu:N", { script = false, tres_per_node = false, tres_per_job = "gres/gpu:1" } },
  }) do
    local fields = { tres_per_node = "gres/gpu:1" }
    for field, value in pairs(case[2]) do fields[field] = value or nil end
    if case[2].script == false then fields.script = false end
    assert_refused(name, case[1], fields)
  end
  for _, line in ipairs({ "# srun --gpus=1\nsrun x", "srun python train.py --gpus=4" }) do
    S.equal((submit({ tres_per_node = "gres/gpu:1", script = "#!/bin/sh\n" .. line .. "\n" })), slurm.SUCCESS, line)
  end
end)

S.test("where the site does not let them in, or nobody ever told, they are refused as before", function()
  S.beat()
  assert_refused("not let in", "write --colocate", { tres_per_node = "gres/gpu:1" })
  S.write_heartbeat("")
  assert_refused("no heartbeat", "write --colocate", { tres_per_node = "gres/gpu:1" })
end)

S.test("a write that fails leaves the job as it was, and refused", function()
  for at = 1, 3 do
    admits(3)
    local job, values = S.batch({ partition = "shared", tres_per_job = "gres/gpu:1" }, false, at)
    local before = S.copy(values)
    S.said = {}
    S.equal(pillion.submit(job, S.partitions(), S.ALICE), slurm.ERROR)
    S.equal(S.differences(before, values), "")
    S.contains(S.said[1], "something failed inside Pillion")
  end
end)

-- Updates ---------------------------------------------------------------------------------------------------------------

local MARK = "pillion2;w=4f1c09aa12bc77de;part=shared;field=node;gres=gpu:1;other=;begin=0;plain=1"

local function modify(changes, mark)
  local rec = { partition = "shared", job_state = 0, min_cpus = 1, max_cpus = 0, tres_per_node = "gres/shard:100",
    admin_comment = mark or MARK }
  local job, values, writes = S.job(S.update(changes))
  S.said = {}
  return pillion.modify(job, rec, S.partitions(), S.ALICE), values, writes()
end

S.test("its user may change what is not in its mark, and move it out", function()
  for _, changes in ipairs({ { min_cpus = 2 }, { cpus_per_task = 2 }, { exc_nodes = "n2" }, { features = "a100" }, { comment = "x" },
    { min_mem_per_node = 5 }, { time_limit = 7 }, { priority = 0 } }) do
    local answer, _, writes = modify(changes)
    S.equal(answer, slurm.SUCCESS, next(changes))
    S.equal(writes, 0, next(changes))
    S.equal(#S.said, 0, next(changes))
  end
  local answer, values = modify({ partition = "gpu" })
  S.equal(answer, slurm.SUCCESS)
  S.equal(values.tres_per_node, "gres/gpu:1", "as it was submitted")
end)

S.test("what is in its mark he may not change", function()
  for _, changes in ipairs({ { tres_per_node = "gres/gpu:2" }, { tres_per_job = "gres/gpu:2" }, { begin_time = 4000000000 },
    { req_nodes = "n1" }, { reservation = "r" }, { min_nodes = 2 }, { num_tasks = 2 }, { shared = 0 } }) do
    local answer, _, writes = modify(changes)
    S.equal(answer, slurm.ERROR, next(changes))
    S.equal(writes, 0, next(changes))
    S.contains(S.said[1], "where this is fixed at the submission", next(changes))
  end
  S.equal((modify({ min_cpus = 2 }, MARK .. ";lease=1700000000;r=0")), slurm.ERROR, "it is about to start")
end)

S.done()
