-- What pillion.submit does with each kind of job: managed whole, left alone whole, or refused with a sentence.

local S = dofile("support.lua")
local pillion = S.pillion
local SCRIPT_DIGEST = "%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x"

local function submit(job, parts, uid) return pillion.submit(job, parts or S.partitions(), uid or S.ALICE) end

local function assert_untouched(name, fields, option, reason, parts)
  local job, values, writes = S.batch(fields, option)
  local before = S.copy(values)
  S.said = {}
  S.equal(submit(job, parts), slurm.SUCCESS, name)
  S.equal(S.differences(before, values), "", name .. ": changed")
  S.equal(writes(), 0, name .. ": writes")
  if reason then
    S.equal(#S.said, 1, name .. ": lines to the user")
    S.contains(S.said[1], reason, name)
  else
    S.equal(#S.said, 0, name .. ": " .. tostring(S.said[1]))
  end
end

local function assert_managed(name, fields, option, parts)
  local job, values = S.batch(fields, option)
  S.said = {}
  S.equal(submit(job, parts), slurm.SUCCESS, name)
  S.equal(values.partition, "shared", name .. ": " .. tostring(S.said[1]))
  S.equal(#S.said, 1, name)
  local is_measured = string.find(option or "", "cap=", 1, true)
  S.contains(S.said[1], is_measured and "pillion: waits for a GPU of its own; " or "pillion: waits for a GPU, of its own or shared; ", name)
  for _, field in ipairs({ "tres_per_job", "tres_per_task", "tres_per_socket", "cpus_per_tres", "mem_per_tres", "tres_bind" }) do
    S.equal(values[field], nil, name .. ": " .. field)
  end
  return values
end

-- Every way to ask for one GPU on one node. The values are what Slurm 24.11.5 was seen to hand over.
local MANAGED = {
  ["--gres=gpu:1"] = { { tres_per_node = "gres/gpu:1" }, "node", "gpu:1" },
  ["--gres=gpu"] = { { tres_per_node = "gres/gpu" }, "node", "gpu" },
  ["--gpus=1"] = { { tres_per_job = "gres/gpu:1" }, "job", "gpu:1" },
  ["--gpus=a100:1"] = { { tres_per_job = "gres/gpu:a100:1" }, "job", "gpu:a100:1" },
  ["--gpus=1 -N1 -n4"] = { { tres_per_job = "gres/gpu:1", min_nodes = 1, max_nodes = 1, num_tasks = 4 }, "job", "gpu:1" },
  ["--gpus-per-node=1 -N1"] = { { tres_per_node = "gres/gpu:1", min_nodes = 1, max_nodes = 1 }, "node", "gpu:1" },
  ["--gpus-per-task=1 -n1"] =
    { { tres_per_task = "gres/gpu=1", num_tasks = 1, tres_bind = "gres/gpu:per_task:1" }, "task", "gpu:1" },
  ["--gpus-per-socket=1 --sockets-per-node=1"] = { { tres_per_socket = "gres/gpu:1", sockets_per_node = 1 }, "socket", "gpu:1" },
  ["--gpus=1 -c4"] =
    { { tres_per_job = "gres/gpu:1", tres_per_task = "cpu=4", cpus_per_task = 4, min_cpus = 4, pn_min_cpus = 4 }, "job", "gpu:1" },
  ["--tres-per-task=cpu=2,gres/gpu=1 -n1"] = { { tres_per_task = "cpu=2,gres/gpu=1", num_tasks = 1, cpus_per_task = 2,
    min_cpus = 2, tres_bind = "gres/gpu:per_task:1" }, "task", "gpu:1" },
  ["-C a100&nvlink"] = { { tres_per_node = "gres/gpu:1", features = "a100&nvlink" }, "node", "gpu:1" },
  ["-x n7"] = { { tres_per_node = "gres/gpu:1", exc_nodes = "n7" }, "node", "gpu:1" },
  ["-s"] = { { tres_per_node = "gres/gpu:1", shared = 1 }, "node", "gpu:1" },
  ["--array"] = { { tres_per_node = "gres/gpu:1", array_inx = "1-3" }, "node", "gpu:1" },
  ["--dependency"] = { { tres_per_node = "gres/gpu:1", dependency = "afterok:1" }, "node", "gpu:1" },
  ["--gres-flags=disable-binding"] = { { tres_per_node = "gres/gpu:1", bitflags = 503840768 }, "node", "gpu:1" },
}
for name, case in pairs(MANAGED) do
  S.test(name, function()
    local values = assert_managed(name, case[1])
    S.equal(values.tres_per_node, "gres/shard:100", name)
    local pattern = "^pillion1;w=" .. SCRIPT_DIGEST .. ";part=;field=" .. case[2] .. ";gres=" .. case[3] .. ";other=;begin=0$"
    assert(string.find(values.admin_comment, pattern), name .. ": " .. values.admin_comment)
    local wait = values.begin_time - os.time()
    assert(wait > 590 and wait <= 600, "begins in " .. wait)
    S.equal(values.time_limit, 5)
  end)
end

-- Every way to ask for several GPUs of one node.
local SEVERAL = {
  ["--gres=gpu:2"] = { { tres_per_node = "gres/gpu:2" }, "node", "gpu:2" },
  ["--gres=gpu:a100:2"] = { { tres_per_node = "gres/gpu:a100:2" }, "node", "gpu:a100:2" },
  ["--gpus=2 -N1 -n2"] = { { tres_per_job = "gres/gpu:2", min_nodes = 1, max_nodes = 1, num_tasks = 2 }, "job", "gpu:2" },
  ["--gpus-per-node=2"] = { { tres_per_node = "gres/gpu:2" }, "node", "gpu:2" },
  ["--gpus-per-task=2 -n1"] =
    { { tres_per_task = "gres/gpu=2", num_tasks = 1, tres_bind = "gres/gpu:per_task:2" }, "task", "gpu:2" },
}
for name, case in pairs(SEVERAL) do
  S.test(name, function()
    local job, values = S.batch(case[1])
    S.said = {}
    S.equal(submit(job), slurm.SUCCESS, name)
    S.contains(S.said[1], "waits for 2 GPUs of one node; should Pillion stop", name)
    for _, field in ipairs({ "tres_per_job", "tres_per_task", "tres_bind" }) do S.equal(values[field], nil, name .. ": " .. field) end
    local first, second = string.match(values.tres_per_node, "^gres/shard:(g%d):100,gres/shard:(g%d):100$")
    local at = first and first .. "," .. second or values.tres_per_node
    assert(at == "g0,g1" or at == "g2,g3", name .. ": " .. at)
    local pattern = "^pillion2;w=" .. SCRIPT_DIGEST .. ";part=;field=" .. case[2] .. ";gres=" .. case[3]
      .. ";other=;begin=0;at=" .. at .. "$"
    assert(string.find(values.admin_comment, pattern), name .. ": " .. values.admin_comment)
  end)
end

S.test("GPUs of each of several nodes", function()
  for count, word in pairs({ ["1"] = "a GPU", ["4"] = "4 GPUs" }) do
    local job, values = S.batch({ tres_per_node = "gres/gpu:" .. count, min_nodes = 2, max_nodes = 2, num_tasks = 4, min_cpus = 16 })
    S.said = {}
    S.equal(submit(job), slurm.SUCCESS, tostring(S.said[1]))
    S.contains(S.said[1], "waits for " .. word .. " on each of 2 nodes, which it shares with nobody; should Pillion stop")
    local all = "gres/shard:g0:100,gres/shard:g1:100,gres/shard:g2:100,gres/shard:g3:100"
    S.equal(values.tres_per_node, count == "1" and "gres/shard:100" or all)
    S.contains(values.admin_comment, ";nodes=2")
    assert(string.find(values.admin_comment, "^pillion2;"), values.admin_comment)
    S.equal(values.min_cpus, 16, "as it was")
  end
end)

S.test("where Slurm starts jobs of several GPUs by itself is not the same for all", function()
  local seen = {}
  for _ = 1, 4 do
    local job, values = S.batch({ tres_per_node = "gres/gpu:2" })
    submit(job)
    seen[values.tres_per_node] = (seen[values.tres_per_node] or 0) + 1
  end
  S.equal(seen["gres/shard:g0:100,gres/shard:g1:100"], 2)
  S.equal(seen["gres/shard:g2:100,gres/shard:g3:100"], 2)
  local job, values = S.batch({ tres_per_node = "gres/gpu:4,gres/lscratch:5" })
  submit(job)
  S.equal(values.tres_per_node,
    "gres/shard:g0:100,gres/shard:g1:100,gres/shard:g2:100,gres/shard:g3:100,gres/lscratch:5", "all of a node")
end)

S.test("of nodes with other devices those are asked for that all have that could run the job", function()
  local function fallbacks(count, ...)
    S.beat(0, "active", S.POOL, ...)
    local seen = {}
    for _ = 1, 4 do
      local job, values = S.batch({ tres_per_node = "gres/gpu:" .. count })
      submit(job)
      seen[#seen + 1] = string.match(values.admin_comment or "", ";at=([%w,]+)$") or "none"
    end
    table.sort(seen)
    return table.concat(seen, " ")
  end
  S.equal(fallbacks(2, S.SHAPE, "shape=shared g0,g1"), "g0,g1 g0,g1 g0,g1 g0,g1")
  S.equal(fallbacks(4, S.SHAPE, "shape=shared g0,g1"), "g0,g1,g2,g3 g0,g1,g2,g3 g0,g1,g2,g3 g0,g1,g2,g3")
  S.equal(fallbacks(2, "shape=shared g0,g1", "shape=shared h0,h1"), "none none none none")
  S.equal(fallbacks(2, S.SHAPE, "shape=other g0,g1"), "g0,g1 g0,g1 g2,g3 g2,g3")
  S.beat()
end)

S.test("what is asked for by GPU counts for each of several", function()
  local job, values = S.batch({ tres_per_node = "gres/gpu:2", cpus_per_tres = "gres/gpu:3", mem_per_tres = "gres/gpu:2000" })
  submit(job)
  S.equal(values.min_cpus, 6)
  S.equal(values.min_mem_per_node, 4000)
end)

S.test("a scheduler that tells of no nodes' devices manages no job of several GPUs", function()
  S.beat(0, "active", S.POOL)
  assert_untouched("without shapes", { tres_per_node = "gres/gpu:2" }, nil, "no nodes with so many GPUs")
  S.beat()
  assert_untouched("under a cap", { tres_per_node = "gres/gpu:2" }, "cap=0.5", "cap= is for jobs of one GPU")
end)

local GPU = { tres_per_node = "gres/gpu:1" }
local function with(fields)
  local all = S.copy(GPU)
  for name, value in pairs(fields) do all[name] = value end
  return all
end

-- What is not provably one GPU, or several of one node, or wants what a shared GPU cannot give.
local UNTOUCHED = {
  ["no GPU"] = { {}, "no GPU" },
  ["--gpus=2"] = { { tres_per_job = "gres/gpu:2" }, "from several nodes; write --nodes=1" },
  ["--gpus=2 -N1-2"] = { { tres_per_job = "gres/gpu:2", min_nodes = 1, max_nodes = 2 }, "--nodes=1" },
  ["--gpus=0"] = { { tres_per_job = "gres/gpu:0" }, "so many GPUs" },
  ["--gres=gpu:65"] = { { tres_per_node = "gres/gpu:65" }, "so many GPUs" },
  ["--gres=gpu:5"] = { { tres_per_node = "gres/gpu:5" }, "no nodes with so many GPUs" },
  ["--gpus-per-socket=2 --sockets-per-node=1"] =
    { { tres_per_socket = "gres/gpu:2", sockets_per_node = 1 }, "by socket" },
  ["--gres=gpu:2 -N2-3"] = { { tres_per_node = "gres/gpu:2", min_nodes = 2, max_nodes = 3 }, "--nodes=1" },
  ["--gpus=4 -N2"] = { { tres_per_job = "gres/gpu:4", min_nodes = 2, max_nodes = 2 }, "asked for by node; write --gres=gpu:N" },
  ["--gres=gpu:2 -N2 --cpus-per-gpu=1"] =
    { { tres_per_node = "gres/gpu:2", min_nodes = 2, max_nodes = 2, cpus_per_tres = "gres/gpu:1" }, "write --cpus-per-task" },
  ["--gres=gpu:2 -N2 too many CPUs"] =
    { { tres_per_node = "gres/gpu:2", min_nodes = 2, max_nodes = 2, min_cpus = 17 }, "too few CPUs" },
  ["--gpus-per-task=2 -n2 -N1"] = { { tres_per_task = "gres/gpu=2", num_tasks = 2, max_nodes = 1 }, "--ntasks=1" },
  ["--gpus-per-task=2 -n1 bound to one"] =
    { { tres_per_task = "gres/gpu=2", num_tasks = 1, tres_bind = "gres/gpu:per_task:1" }, "--gpu-bind" },
  ["--gres=gpu:2 --mem-per-gpu too much"] =
    { { tres_per_node = "gres/gpu:2", mem_per_tres = "gres/gpu:4001" }, "too little memory" },
  ["--gres=gpu:2 --cpus-per-gpu too many"] =
    { { tres_per_node = "gres/gpu:2", cpus_per_tres = "gres/gpu:5" }, "too few CPUs" },
  ["--gres=gpu:a100:1,gpu:v100:1"] = { { tres_per_node = "gres/gpu:a100:1,gres/gpu:v100:1" }, "more than one place" },
  ["--gres and --gpus"] = { { tres_per_node = "gres/gpu:1", tres_per_job = "gres/gpu:1" }, "more than one place" },
  ["--gres=gpu:1(S:0)"] = { { tres_per_node = "gres/gpu:1(S:0)" }, "does not know" },
  ["a licence by task"] = { { tres_per_task = "gres/gpu=1,license/x=1", num_tasks = 1 }, "does not know" },
  ["another GRES by task"] = { { tres_per_task = "gres/gpu=1,gres/nic=1", num_tasks = 1 }, "'nic' for each task" },
  ["-n4"] = { with({ num_tasks = 4 }), "--nodes=1" },
  ["--ntasks-per-node=4"] = { with({ ntasks_per_node = 4 }), "--nodes=1" },
  ["-N1-2"] = { with({ min_nodes = 1, max_nodes = 2 }), "--nodes=1" },
  ["--gpus-per-task=1"] = { { tres_per_task = "gres/gpu=1" }, "--ntasks=1" },
  ["--gpus-per-task=1 -N1 -n2"] = { { tres_per_task = "gres/gpu=1", num_tasks = 2, max_nodes = 1 }, "--ntasks=1" },
  ["--gpus-per-socket=1"] = { { tres_per_socket = "gres/gpu:1" }, "by socket" },
  ["--exclusive"] = { with({ shared = 0 }), "--exclusive" },
  ["--exclusive=user"] = { with({ shared = 2 }), "--exclusive" },
  ["het job"] = { with({ het_job_offset = 0 }), "heterogeneous" },
  ["scrontab"] = { with({ cron_job = true }), "scrontab" },
  ["-M"] = { with({ clusters = "a,b" }), "clusters" },
  ["-w"] = { with({ req_nodes = "n1" }), "-w" },
  ["-H"] = { with({ priority = 0 }), "held" },
  ["--reservation"] = { with({ reservation = "maint" }), "reservation" },
  ["--bb"] = { with({ burst_buffer = "#BB" }), "burst buffer" },
  ["--gres-flags=enforce-binding"] = { with({ bitflags = 503316496 }), "enforce-binding" },
  ["--requeue=expedite"] = { with({ bitflags = 2 ^ 43 + 4 }), "--requeue=expedite" },
  ["--ntasks-per-gpu=2"] = { with({ ntasks_per_tres = 2, num_tasks = 1 }), "--ntasks-per-gpu" },
  ["--gpu-freq"] = { with({ tres_freq = "gpu:low" }), "--gpu-freq" },
  ["--gpu-bind"] = { with({ tres_bind = "gres/gpu:closest" }), "--gpu-bind" },
  ["--batch"] = { with({ batch_features = "a100" }), "--batch" },
  ["--reboot"] = { with({ reboot = 1 }), "reboots" },
  ["--deadline in the script"] = { with({ script = "#!/bin/sh\n#SBATCH -n1 --deadline=now+1hour\n" }), "--deadline" },
  ["--deadline on the command line"] = { with({ spank_job_env_size = 2, spank_job_env = {
    [0] = "PILLION_DEADLINE=1", [1] = "_SLURM_SPANK_OPTION_pillion_colocate=" } }), "--deadline" },
  ["-C a100|nvlink"] = { with({ features = "a100|nvlink" }), "features of -C" },
  ["-C h100"] = { with({ features = "h100" }), "features of -C" },
  ["--gres=gpu:h100:1"] = { { tres_per_node = "gres/gpu:h100:1" }, "no GPU of that type" },
  ["--mem too much"] = { with({ min_mem_per_node = 8001 }), "too little memory" },
  ["--mem-per-cpu too much"] = { with({ min_mem_per_cpu = 2001, cpus_per_task = 4, min_cpus = 4 }), "too little memory" },
  ["-c too many"] = { with({ cpus_per_task = 9, min_cpus = 9 }), "too few CPUs" },
  ["-c and --cpus-per-gpu"] = { with({ cpus_per_task = 2, cpus_per_tres = "gres/gpu:4" }), "by task and by GPU" },
  ["--mem and --mem-per-gpu"] = { with({ min_mem_per_node = 2, mem_per_tres = "gres/gpu:4" }), "more than one way" },
  ["--mem-per-gpu of a type"] = { with({ mem_per_tres = "gres/gpu:a100:4" }), "another GRES" },
  ["a partition of strange name"] = { with({ partition = "a+b" }), "unusual", { ["a+b"] = S.partition() } },
  ["a partition of long name"] = { with({ partition = string.rep("p", 350) }), "too long", -- a release would add to it
    { [string.rep("p", 350)] = S.partition() } },
  ["a partition that is not there"] = { with({ partition = "nowhere" }), "not open to you" },
  ["a partition with exclusive users"] = { with({ partition = "long" }), "exclusive", { long = S.partition({ flags = 64 }) } },
  ["salloc"] = { with({ script = false }), "say how much GPU memory it takes" },
}
for name, case in pairs(UNTOUCHED) do
  S.test(name, function() assert_untouched(name, case[1], nil, case[2], S.partitions(case[3])) end)
end

S.test("other GRES are kept, and remembered", function()
  local values = assert_managed("others", { tres_per_node = "gres/lscratch:100,gres/gpu:a100:1,gres/nic:x:2" })
  S.equal(values.tres_per_node, "gres/shard:100,gres/lscratch:100,gres/nic:x:2")
  S.contains(values.admin_comment, ";gres=gpu:a100:1;other=lscratch:100,nic:x:2;")
end)

S.test("CPUs and memory by GPU are folded in", function()
  local values = assert_managed("fold", { tres_per_job = "gres/gpu:1", cpus_per_tres = "gres/gpu:4",
    mem_per_tres = "gres/gpu:4096", min_cpus = 4 })
  S.equal(values.cpus_per_task, 4)
  S.equal(values.min_mem_per_node, 4096)
  values = assert_managed("fold, tasks", { tres_per_job = "gres/gpu:1", cpus_per_tres = "gres/gpu:4", num_tasks = 2, max_nodes = 1 })
  S.equal(values.cpus_per_task, slurm.NO_VAL16)
  S.equal(values.min_cpus, 4)
end)

-- As it was: who wrote nothing had one CPU in the pool, and eight beside it.
S.test("what the site gives by GPU is given where nothing is asked for", function()
  local GIVES = "per_gpu=gpu cpus=6 memory_mib=3000"
  local function sizes(fields, line)
    S.beat(0, "active", S.POOL, S.SHAPE, line or GIVES)
    local job, values = S.batch(with(fields))
    S.equal(submit(job), slurm.SUCCESS)
    return { values.cpus_per_task, values.min_cpus, values.min_mem_per_node }
  end
  local function same(fields, line, cpus_per_task, min_cpus, memory)
    local found = sizes(fields, line)
    S.equal(found[1], cpus_per_task)
    S.equal(found[2], min_cpus)
    S.equal(found[3], memory)
  end
  local untouched = sizes({}, "per_gpu=other cpus=6 memory_mib=3000")
  same({}, nil, 6, 6, 3000)
  same({ partition = "long,gpu" }, nil, untouched[1], untouched[2], untouched[3])
  same({}, "per_gpu=gpu cpus=6 memory_mib=0", 6, 6, untouched[3])
  same({}, "per_gpu=gpu cpus=0 memory_mib=3000", untouched[1], untouched[2], 3000)
  same({ tres_per_node = "gres/gpu:2" }, "per_gpu=gpu cpus=3 memory_mib=1000", 6, 6, 2000)
  same({ cpus_per_task = 1 }, nil, 1, untouched[2], 3000)
  same({ num_tasks = 8, max_nodes = 1 }, nil, untouched[1], 8, 3000)
  same({ cpus_per_tres = "gres/gpu:2", mem_per_tres = "gres/gpu:500" }, nil, 2, 2, 500)
  same({ min_mem_per_node = 200 }, nil, 6, 6, 200)
  same({ min_mem_per_node = 0 }, nil, 6, 6, 0)
  S.beat(0, "active", S.POOL, S.SHAPE, "per_gpu=gpu cpus=60 memory_mib=0")
  assert_untouched("more than any node has", GPU, nil, "too few CPUs")
  local several = { tres_per_node = "gres/gpu:2", min_nodes = 2, max_nodes = 2 }
  S.beat(0, "active", S.POOL, S.SHAPE, GIVES)
  assert_untouched("on several nodes", several, nil, "write --cpus-per-task and --mem")
  S.beat()
end)

S.test("the user's own begin is kept where it is later", function()
  local later = os.time() + 7200
  local values = assert_managed("later", with({ begin_time = later }))
  S.equal(values.begin_time, later)
  S.contains(values.admin_comment, string.format(";begin=%.0f", later))
  local sooner = os.time() + 5
  values = assert_managed("sooner", with({ begin_time = sooner }))
  assert(values.begin_time > sooner + 500)
  S.contains(values.admin_comment, string.format(";begin=%.0f", sooner))
end)

S.test("the settings of the option are in the mark", function()
  local capped = assert_managed("a cap", GPU, "profile=bert,cap=0.3")
  S.contains(capped.admin_comment, ";c=0.3;")
  local walled = assert_managed("a wall", GPU, "isolation=hard,memory=1G")
  S.contains(walled.admin_comment, ";m=1024;i=hard;part=;")
  local restarted = assert_managed("consent", GPU, "restart=yes,isolation=hard")
  S.contains(restarted.admin_comment, ";i=hard;oom=1;part=;")
  local early = assert_managed("consent to be ended", GPU, "restart=early")
  S.contains(early.admin_comment, ";oom=1;early=1;part=;")
  local values = assert_managed("settings", GPU, "max-slowdown=1.150,memory=1025K,profile=bert")
  S.contains(values.admin_comment, ";s=1.150;m=2;part=;")
  local again = assert_managed("again", with({ script = "#!/bin/sh\nother\n", name = "other" }), "profile=bert")
  S.equal(string.match(again.admin_comment, "w=(%x+)"), string.match(values.admin_comment, "w=(%x+)"))
  assert(not string.find(values.admin_comment, "bert"), "the profile's name stands in clear")
end)

S.test("the digest is of what the script does", function()
  local function digest(script, name) return pillion.workload_digest(nil, name or "train", script) end
  local plain = digest("#!/bin/sh\npython train.py\n")
  S.equal(digest("#!/bin/sh\n#SBATCH -t 5\n\n  python train.py   \n"), plain)
  S.equal(digest("#!/bin/sh\r\npython train.py"), plain)
  assert(digest("#!/bin/sh\npython train2.py\n") ~= plain and digest("#!/bin/sh\npython train.py\n", "x") ~= plain)
  -- Computed once with integers of any size, in another language: 5.1 has only floating point, and must agree.
  S.equal(pillion.digest(""), "000f4243001e8456")
  S.equal(plain, "9c656cc0387bd58e")
  S.equal(pillion.digest(string.rep("\255", 1000)), "a1f35b1b90fe126b")
end)

S.test("4 MB of script take no time to speak of", function()
  for _, script in ipairs({ string.rep("x=1 # foo\n", 400000), string.rep("\n", 4000000), string.rep("a\n", 2000000),
    string.rep("\n#SBATCH --de", 300000), "\n#SBATCH " .. string.rep("--de", 1000000) }) do
    local before = os.clock()
    assert_managed("big", with({ script = script }))
    local took = os.clock() - before
    -- Measured: 0.02 to 0.07 s. Generous, for a busy machine; a quadratic step would take minutes.
    assert(took < 1, "took " .. took .. " s")
  end
end)

S.test("a job whose steps ask for GPUs is left alone: there are none in a job that has shards", function()
  local function script(line) return with({ script = "#!/bin/sh\n" .. line .. "\n" }) end
  for _, line in ipairs({
    "srun --gpus=1 x", "srun -n 4 --gpus-per-task=1 x", "srun -n1 \\\n  -G 1 x", "srun -G1 x", "srun --gres=gpu:1 x",
    "srun --gres gpu:1 x", "srun --tres-per-task=gres/gpu:1 x", "srun --ntasks-per-gpu=2 x", "time /usr/bin/srun --gpus 1 x",
    "srun x & srun --gpus=1 y", "out=$(srun -n 1 -c 4 --gpus=1 x)",
  }) do
    assert_untouched(line, script(line), nil, "a step in its script asks for GPUs")
  end
  for _, line in ipairs({
    "# srun --gpus=1 x", "srun python train.py --gpus=4", "srun -n 1 --mpi=pmix python train.py --gpus 4", "srun x # --gpus=1",
    "python train.py --gpus=4", "srun --gres=none x", "srun --export=ALL,G=-G1 x", "srun bash -c 'y --gres=gpu:1'", "mysrun --gpus=1 x",
  }) do
    assert_managed(line, script(line))
  end
end)

-- slurmctld holds its lock meanwhile: what walks on from each word is done in days.
S.test("a script of one long line costs a walk along it", function()
  for _, word in ipairs({ "--gres=", "--gres= ", "srun ", "srun --gres=", "-G ", "-G", "--tres-per-task=" }) do
    local line = "srun " .. string.rep(word, math.floor(262144 / #word))
    local begun = os.clock()
    assert_managed(word, with({ script = "#!/bin/sh\n" .. line .. "\n" }))
    local took = os.clock() - begun
    assert(took < 1, word .. " took " .. took .. " s")
  end
end)

S.test("the time limit is the one of the user's partition", function()
  local any = with({ time_limit = slurm.NO_VAL })
  local function from(fields, pool)
    fields.flag_default = 1
    return S.partitions({ gpu = S.partition(fields), shared = S.partition(pool) })
  end
  local values = assert_managed("default", any, nil, from({ default_time = 60 }))
  S.equal(values.time_limit, 60)
  values = assert_managed("another default", any, nil, from({ default_time = 60 }, { default_time = 30 }))
  S.equal(values.time_limit, 60)
  assert_untouched("no default", any, nil, "demands a time limit", from({ default_time = 0 }))
  assert_untouched("a default too long", any, nil, "shorter time limit", from({ default_time = 61 }, { max_time = 60 }))
  -- What is written Slurm does not cut down to MaxWall of a QOS.
  values = assert_managed("unlimited in both", any)
  S.equal(values.time_limit, slurm.NO_VAL)
  values = assert_managed("the same default in both", any, nil, from({ default_time = 60, max_time = 90 }, { default_time = 60 }))
  S.equal(values.time_limit, slurm.NO_VAL)
  values = assert_managed("the same maximum in both", any, nil, from({ max_time = 90 }, { max_time = 90 }))
  S.equal(values.time_limit, slurm.NO_VAL)
  local another = "gives another time limit to a job without one; write --time"
  assert_untouched("another maximum", any, nil, another, from({ max_time = 90 }))
  assert_untouched("a shorter maximum", any, nil, another, from({}, { max_time = 60 }))
  assert_untouched("the pool has a default", any, nil, another, from({ max_time = 90 }, { default_time = 90 }))
  local short = S.partitions({ shared = S.partition({ max_time = 60 }) })
  assert_untouched("too long", with({ time_limit = 61 }), nil, "shorter time limit", short)
  assert_managed("short enough", with({ time_limit = 60 }), nil, short)
  S.equal(assert_managed("no limit at all", with({ time_limit = 0 })).time_limit, slurm.INFINITE)
  local two = S.partitions({ long = S.partition({ default_time = 9 }) })
  assert_untouched("two partitions", with({ partition = "gpu,long", time_limit = slurm.NO_VAL }), nil, "write --time", two)
end)

-- As it was: each of these was sent to the pool, and Slurm refused the submission.
S.test("a job goes to the pool only where some nodes have all that it asks for", function()
  S.beat(0, "active", S.POOL, "shape=shared g0,g1", "nodes=shared count=1 cpus=8 memory_mib=2000 features=a100",
    "nodes=shared count=2 cpus=2 memory_mib=8000 features=nvlink")
  local few = "may have too few nodes"
  local function gpus(fields)
    fields.tres_per_node = "gres/gpu:1"
    return with(fields)
  end
  local job, values = S.batch(gpus({ min_nodes = 3, max_nodes = 3 }))
  S.equal(submit(job), slurm.SUCCESS)
  S.equal(values.partition, "shared", "as many as there are of both classes")
  assert_untouched("more nodes than there are", gpus({ min_nodes = 4, max_nodes = 4 }), nil, few)
  assert_untouched("two of the larger ones", gpus({ min_nodes = 2, max_nodes = 2, min_mem_per_node = 4000, features = "a100" }), nil, few)
  assert_untouched("much of both", gpus({ cpus_per_task = 8, min_cpus = 8, min_mem_per_node = 4000 }), nil, few)
  assert_managed("much of one", gpus({ cpus_per_task = 8, min_cpus = 8 }))
  assert_untouched("both features", gpus({ features = "a100&nvlink" }), nil, few)
  assert_managed("two are excluded", gpus({ exc_nodes = "n[1-2]" }))
  for _, list in ipairs({ "n[1-3]", "n1,n2,n3", "n[1,2],m7", "n[1-2]-x[1-2]" }) do
    assert_untouched("-x " .. list, gpus({ exc_nodes = list }), nil, few)
  end
  -- Of its own partition Slurm knows best, and here it would be refused.
  assert_managed("sent there by its user", gpus({ partition = "shared", exc_nodes = "m[1-9]" }))
  S.beat(0, "active", S.POOL, "shape=shared g0,g1")
  assert_managed("nobody tells", gpus({ exc_nodes = "n[1-3]" }))
  S.beat(0, "active", S.POOL)
end)

S.test("other GRES and scratch space are looked for on the pool's nodes", function()
  local class, few = "nodes=shared count=2 cpus=8 memory_mib=8000 features=", "--tmp, other GRES"
  S.beat(0, "active", S.POOL, S.SHAPE, class .. " scratch_mib=500 gres=lscratch:1073741824,nic:4,nic:x:2")
  local function gres(more) return { tres_per_node = "gres/gpu:1," .. more } end
  for _, has in ipairs({ "gres/lscratch:100", "gres/lscratch:1G", "gres/nic:4", "gres/nic", "gres/nic:x:2", "gres/nic:x" }) do
    assert_managed(has, gres(has))
  end
  for _, lacks in ipairs({ "gres/lscratch:2G", "gres/nic:5", "gres/nic:x:3", "gres/nic:y:1", "gres/fpga", "gres/fpga:1" }) do
    assert_untouched(lacks, gres(lacks), nil, few)
  end
  assert_managed("as much as there is", with({ pn_min_tmp_disk = 500 }))
  assert_managed("no --tmp", with({ pn_min_tmp_disk = slurm.NO_VAL }))
  assert_untouched("more than there is", with({ pn_min_tmp_disk = 501 }), nil, few)
  S.beat(0, "active", S.POOL, S.SHAPE, class .. " scratch_mib=500 gres=")
  assert_untouched("there are none", gres("gres/nic"), nil, few)
  -- That cannot be counted, and by a scheduler of before.
  for _, line in ipairs({ class .. " scratch_mib=500", class }) do
    S.beat(0, "active", S.POOL, S.SHAPE, line)
    assert_managed("nobody tells", gres("gres/fpga"))
  end
  S.beat(0, "active", S.POOL)
end)

S.test("a pool is taken only if it admits the job", function()
  local function pool(fields) return S.partitions({ shared = S.partition(fields) }) end
  assert_untouched("hidden", GPU, nil, "not open to you", S.partitions({ shared = false }))
  assert_untouched("down", GPU, nil, "is not up", pool({ state_up = 1 }))
  assert_untouched("reservation", GPU, nil, "reservation", pool({ flags = 16 }))
  assert_untouched("exclusive user", GPU, nil, "exclusive", pool({ flags = 64 }))
  assert_untouched("account", with({ account = "bio" }), nil, "account", pool({ allow_accounts = "chem,phys" }))
  assert_untouched("no account", GPU, nil, "account", pool({ allow_accounts = "chem" }))
  assert_managed("account", with({ account = "Chem" }), nil, pool({ allow_accounts = "chem,phys" }))
  assert_managed("default account", with({ default_account = "phys" }), nil, pool({ allow_accounts = "chem,phys" }))
  assert_untouched("denied", with({ account = "bio" }), nil, "account", pool({ deny_accounts = "bio" }))
  assert_untouched("QOS", with({ qos = "low" }), nil, "does not admit the QOS low", pool({ allow_qos = "high" }))
  assert_untouched("no QOS", GPU, nil, "admits some QOS only, and your job has none", pool({ allow_qos = "high" }))
  assert_untouched("denied QOS", with({ qos = "low" }), nil, "QOS", pool({ deny_qos = "low" }))
  assert_managed("everybody", GPU, nil, pool({ allow_accounts = "ALL", allow_qos = "ALL", allow_alloc_nodes = "ALL" }))
  assert_untouched("host", with({ alloc_node = "login1" }), nil, "host", pool({ allow_alloc_nodes = "login2" }))
  assert_untouched("CPUs", with({ min_cpus = 5 }), nil, "too few CPUs", pool({ max_cpus_per_node = 4 }))
end)

S.test("the first pool that could run it is taken", function()
  S.beat(0, "active", S.POOL, "pool=big cpus=64 memory_mib=500000 features= gpu_types=h100")
  local parts = S.partitions({ big = S.partition() })
  local job, values = S.batch({ tres_per_job = "gres/gpu:h100:1" })
  submit(job, parts)
  S.equal(values.partition, "big")
  job, values = S.batch(GPU)
  submit(job, parts)
  S.equal(values.partition, "shared")
end)

S.test("who asks for one of several models is not sent where Slurm could start him on another", function()
  local typed = { tres_per_node = "gres/gpu:a100:1" }
  S.beat(0, "active", S.POOL, S.SHAPE, "models=shared a100")
  assert_untouched("a model", typed, nil, "several models")
  assert_managed("any model", GPU)
  assert_managed("by its feature", with({ features = "a100" }))
  local wide = "pool=one cpus=64 memory_mib=500000 features= gpu_types=a100"
  S.beat(0, "active", S.POOL, S.SHAPE, "models=shared a100", wide, "models=one")
  local job, values = S.batch(typed)
  submit(job, S.partitions({ one = S.partition() }))
  S.equal(values.partition, "one")
end)

S.test("without a live heartbeat every job is left alone", function()
  for age, mode in pairs({ [31] = "active", [-60] = "active", [0] = "off", [1] = "later" }) do
    S.beat(age, mode)
    assert_untouched(mode .. age, GPU, nil, "Pillion")
  end
  for _, text in ipairs({ "", "pillion2 epoch=1 bound=600 mode=active\n", "pillion1 epoch=x", string.rep("x", 1000000),
    string.format("pillion1 epoch=%.0f bound=0 mode=active\n%s\n", os.time(), S.POOL) }) do
    S.write_heartbeat(text)
    assert_untouched(string.sub(text, 1, 20), GPU, nil, "Pillion")
  end
  os.remove(S.heartbeat_path)
  assert_untouched("missing", GPU, nil, "scheduler is not running")
end)

S.test("a job without the option, or with no, is left without a word", function()
  assert_untouched("absent", GPU, false)
  assert_untouched("no", GPU, "no")
  assert_untouched("unknown TRES", { tres_per_node = "gres/gpu:1(S:0)" }, false)
end)

S.test("the user is told what was understood", function()
  local noon = os.time({ year = 2026, month = 11, day = 21, hour = 12 })
  local real_time = os.time
  local function told(option, heartbeat_line, now)
    os.time = function() return now or noon end
    S.write_heartbeat(string.format("pillion1 epoch=%d bound=600 mode=active\n%s", now or noon, heartbeat_line)
      .. "pool=shared cpus=64 memory_mib=515000 features= gpu_types=\n")
    assert_managed(option, GPU, option)
    os.time = real_time
    return S.said[1]
  end
  S.equal(told("yes", "slowdown=1.25\n"),
    "pillion: waits for a GPU, of its own or shared; if shared, at most 25 % slower; "
      .. "should Pillion stop, Slurm starts it alone from 12:10 on")
  S.contains(told("max-slowdown=1.1", "slowdown=1.25\n"), "at most 10 % slower;")
  S.contains(told("max-slowdown=2.5", ""), "at most 2.5 times as long;")
  S.contains(told("max-slowdown=1", ""), "; if shared, no slower;")
  S.contains(told("cap=1", ""), "pillion: waits for a GPU of its own; runs alone, to be measured; should Pillion stop,")
  S.contains(told("cap=0.3,profile=bert", ""), "runs alone with 30 % of it, to be measured; should Pillion stop,")
  S.contains(told("yes", ""), "slowed no more than its pairing promises;") -- a scheduler of an earlier release
  S.contains(told("yes", "slowdown=nonsense\n"), "slowed no more than its pairing promises;")
  S.contains(told("yes", "", noon + 12 * 3600 - 300), "alone from 2026-11-22T00:05 on")
end)

S.test("a bad option is refused with a sentence", function()
  for _, option in ipairs({ "maybe", "memory=8", string.rep("x", 60000), "a\nb", "\255" }) do
    local job, values = S.batch(GPU, option)
    local before = S.copy(values)
    S.said = {}
    S.equal(submit(job), slurm.ERROR)
    S.equal(S.differences(before, values), "")
    S.contains(S.said[1], "pillion: not submitted: --colocate: ")
    assert(#S.said[1] < 700 and not string.find(S.said[1], "[%c\128-\255]"), "what is said is bounded and clean")
  end
end)

S.test("nobody but root and SlurmUser asks for shards", function()
  for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_bind" }) do
    for _, value in ipairs({ "gres/shard:10", "gres/gpu:1,gres/shard:g1:10", "shard", "gres:shard:1", "GRES/SHARD=1", " shard:1" }) do
      for _, option in ipairs({ false, "yes" }) do
        local job, values, writes = S.batch({ [field] = value }, option)
        S.said = {}
        S.equal(submit(job), slurm.ERROR, field .. "=" .. value)
        S.contains(S.said[1], "--gres=gpu:1")
        S.equal(writes() + (values.partition and 1 or 0), 0)
      end
    end
  end
  for _, uid in ipairs({ 0, 64030 }) do
    S.equal(submit((S.batch({ tres_per_node = "gres/shard:10", partition = "shared" }, false)), nil, uid), slurm.SUCCESS)
  end
  S.equal(submit((S.batch({ tres_per_node = "gres/shardware:1" }, false))), slurm.SUCCESS, "another GRES of similar name")
end)

S.test("the pool is for co-located jobs", function()
  local function refused(name, fields, option, parts)
    S.said = {}
    S.equal(submit((S.batch(fields, option)), parts), slurm.ERROR, name)
    S.contains(S.said[#S.said], "--colocate", name)
  end
  refused("without", { tres_per_node = "gres/gpu:1", partition = "shared" }, false)
  refused("in a list", { tres_per_node = "gres/gpu:1", partition = "gpu,shared" }, false)
  refused("no GPU", { partition = "shared" }, false)
  refused("unfit", { tres_per_job = "gres/gpu:2", partition = "shared" })
  refused("as the default", {}, false, S.partitions({ gpu = S.partition(), shared = S.partition({ flag_default = 1 }) }))
  S.contains(assert_managed("with", with({ partition = "shared" })).admin_comment, ";part=shared;")
  S.contains(assert_managed("in a list", with({ partition = "gpu,shared" })).admin_comment, ";part=gpu,shared;")
  os.remove(S.heartbeat_path)
  refused("while the scheduler is down", { tres_per_node = "gres/gpu:1", partition = "shared" })
end)

-- The wording is what docs/metrics.md has operators look for: it stays.
S.test("what is refused or left alone stands in slurmctld's log, one line each", function()
  local function noted(fields, option, line, uid)
    S.noted = {}
    submit((S.batch(fields, option)), nil, uid)
    S.equal(table.concat(S.noted, "|"), line)
  end
  noted({ tres_per_node = "gres/shard:10" }, false, "pillion: submission refused uid=2001 why=shards")
  noted(GPU, "a\nb", "pillion: submission refused uid=2001 why=option")
  noted({ tres_per_node = "gres/gpu:1", partition = "shared" }, false, "pillion: submission refused uid=2001 why=pool")
  local none = { tres_per_node = "gres/lscratch:2" }
  local why = "why=it asks for no GPU; write for example --gres=gpu:1"
  noted(none, "yes", "pillion: submission left alone uid=2001 " .. why)
  noted(none, "yes", "pillion: submission left alone uid=4294967294 " .. why, 4294967294)
  noted(GPU, "yes", "")
  noted(GPU, "no", "")
  noted({ tres_per_node = "gres/shard:10" }, false, "", 0)
  for _, odd in ipairs({ "gres/gpu:1,gres/a\nb:1", "gres/\27[31m:1", "gres/" .. string.rep("x", 60000) }) do
    S.noted = {}
    submit((S.batch({ tres_per_node = odd }, "yes")))
    S.equal(#S.noted, 1)
    assert(#S.noted[1] < 300 and not string.find(S.noted[1], "[%c\128-\255]"), "a line of the log is bounded and clean")
  end
end)

S.test("if any assignment fails, all are taken back", function()
  local fields = { tres_per_job = "gres/gpu:1", tres_per_node = "gres/lscratch:5", tres_per_task = "cpu=2", cpus_per_task = 2,
    min_cpus = 2, mem_per_tres = "gres/gpu:4096", time_limit = slurm.NO_VAL, partition = "gpu", begin_time = 5 }
  local _, _, writes = S.batch(fields)
  local job, _, count = S.batch(fields)
  S.equal(submit(job), slurm.SUCCESS)
  assert(count() >= 8, "only " .. count() .. " writes")
  S.equal(writes(), 0)
  for fails_at = 1, count() do
    local values
    job, values = S.batch(fields, nil, fails_at)
    local before = S.copy(values)
    S.said, S.logged = {}, {}
    S.equal(submit(job), slurm.SUCCESS, "write " .. fails_at)
    -- Memory is the one field that Lua cannot empty; the same amount stands in mem_per_tres again.
    local left = S.differences(before, values)
    assert(left == "" or (left == "min_mem_per_node" and values.min_mem_per_node == 4096), "write " .. fails_at .. ": " .. left)
    S.contains(S.said[1], "something failed inside Pillion")
    S.contains(S.logged[1], "told to fail")
  end
end)

S.test("a failure before the first assignment leaves the job alone", function()
  local job = S.batch(GPU)
  local parts = setmetatable({}, { __index = function() error("partitions cannot be read") end, __pairs = nil })
  S.equal(submit(setmetatable({}, { __index = job, __newindex = job }), parts), slurm.SUCCESS)
  S.contains(S.said[1], "left as you wrote it")
end)

S.test("odd bytes anywhere are survived", function()
  local odd = "a\0b\n;lease=1\255" .. string.rep("x", 60000)
  assert_managed("name, comment", with({ name = odd, comment = odd, script = odd, account = odd }))
  assert_untouched("partition", with({ partition = odd }), nil, "not open")
  assert_untouched("GRES", { tres_per_node = "gres/gpu:1," .. odd }, nil, "does not know")
end)

S.test("a guest is started again, and says so in its mark", function()
  for _, requeue in ipairs({ slurm.NO_VAL16, 1 }) do
    local job, values = S.batch(with({ requeue = requeue }), "guest,memory=8G")
    S.said = {}
    S.equal(submit(job), slurm.SUCCESS)
    S.equal(values.partition, "shared", tostring(S.said[1]))
    S.contains(S.said[1], "pillion: waits as a guest for a GPU that nobody else needs, of its own or shared; where somebody needs it, ")
    S.contains(values.admin_comment, ";m=8192;guest=1;part=;")
    S.equal(values.requeue, 1)
    S.equal(values.qos, nil, "whose job it is decides its QOS")
  end
end)

S.test("a guest has the QOS of guests where the site has one and its user names none", function()
  pillion.configure({ guest_qos = "scavenger" })
  local job, values = S.batch(GPU, "guest")
  submit(job)
  S.equal(values.qos, "scavenger")
  job, values = S.batch(with({ qos = "high" }), "guest")
  submit(job)
  S.equal(values.qos, "high")
  job, values = S.batch(GPU, "yes")
  submit(job)
  S.equal(values.qos, nil, "it is no guest")
  local function pool(fields) return S.partitions({ shared = S.partition(fields) }) end
  assert_untouched("a pool for others", GPU, "guest", "does not admit the QOS scavenger", pool({ allow_qos = "normal" }))
  assert_untouched("no guest", with({ qos = "normal" }), "yes", "does not admit the QOS normal", pool({ allow_qos = "scavenger" }))
  for qos, admitted in pairs({ scavenger = GPU, normal = with({ qos = "normal" }) }) do
    job, values = S.batch(admitted, "guest")
    S.said = {}
    submit(job, pool({ allow_qos = qos }))
    S.equal(values.partition, "shared", qos .. ": " .. tostring(S.said[1]))
    S.contains(S.said[1], "in the QOS scavenger unless --qos names another", qos)
  end
  pillion.configure({ unmanaged_qos = { "scavenger" } })
  assert_untouched("a QOS of whole GPUs", GPU, "guest", "its QOS demands a whole GPU")
  pillion.configure({ guest_qos = "", unmanaged_qos = {} })
end)

S.test("what cannot be a guest is left as its user wrote it", function()
  assert_untouched("--no-requeue", with({ requeue = 0 }), "guest", "leave out --no-requeue")
  assert_untouched("cap=", with({}), "guest,cap=0.5", "is measured alone")
  assert_untouched("several GPUs", { tres_per_node = "gres/gpu:2" }, "guest", "a guest has one GPU")
end)

S.test("configure refuses what it does not know", function()
  assert(not pcall(pillion.configure, { heartbeet = "/x" }))
  assert(not pcall(pillion.configure, { pools = "shared" }))
end)

S.test("a list of excluded nodes costs no more than its length", function()
  S.beat(0, "active", S.POOL, S.SHAPE, "nodes=shared count=2 cpus=8 memory_mib=8000 features=a100,nvlink")
  for _, list in ipairs({ string.rep("[", 100000), "n[" .. string.rep("1,", 50000), string.rep("n[1-2],", 20000), string.rep("[]", 50000),
    string.rep("a[1]b", 20000) }) do
    local before = os.clock()
    local job = S.batch({ tres_per_node = "gres/gpu:1", exc_nodes = list })
    S.equal(pillion.submit(job, S.partitions(), S.ALICE), slurm.SUCCESS)
    S.equal(os.clock() - before < 0.5, true, "seconds for " .. string.sub(list, 1, 10))
  end
end)

local function untouched(fields, parts, reason)
  local job, _, writes = S.batch(fields)
  S.said = {}
  S.equal(pillion.submit(job, parts, S.ALICE), slurm.SUCCESS)
  S.equal(writes(), 0, reason)
  S.contains(S.said[1], reason)
end

S.test("the pool's own limits of nodes and memory leave a job that its partition takes alone", function()
  local function parts(fields) return S.partitions({ shared = S.partition(fields) }) end
  local two = { tres_per_node = "gres/gpu:1", min_nodes = 2, max_nodes = 2 }
  untouched(two, parts({ max_nodes = 1 }), "takes jobs of other numbers of nodes")
  untouched({ tres_per_node = "gres/gpu:1" }, parts({ min_nodes = 2 }), "takes jobs of other numbers of nodes")
  untouched({ tres_per_node = "gres/gpu:1", min_mem_per_node = 4000 }, parts({ max_mem_per_node = 1000 }), "less memory a node")
  for _, limit in ipairs({ 0, 4000, slurm.NO_VAL64 }) do
    local job, values = S.batch({ tres_per_node = "gres/gpu:1", min_mem_per_node = 4000 })
    pillion.submit(job, parts({ max_mem_per_node = limit, max_nodes = slurm.INFINITE, min_nodes = 1 }), S.ALICE)
    S.equal(values.partition, "shared", limit)
  end
end)

S.test("who names no memory is left where the pool would give less", function()
  local function parts(gpu, shared, more)
    gpu.flag_default, gpu.flags = 1, 1
    return S.partitions({ gpu = S.partition(gpu), shared = S.partition(shared), long = S.partition(more) })
  end
  local function job(more)
    local all = { tres_per_node = "gres/gpu:1" }
    for name, value in pairs(more or {}) do all[name] = value end
    return all
  end
  local less = "gives less memory to a job that names none; write --mem"
  untouched(job(), parts({ def_mem_per_cpu = 400 }, { def_mem_per_cpu = 50 }), less)
  untouched(job(), parts({ def_mem_per_cpu = 400 }, {}), less)
  untouched(job(), parts({ def_mem_per_node = 3000 }, { def_mem_per_cpu = 500 }), less)
  untouched(job({ partition = "gpu,long" }), parts({}, { def_mem_per_cpu = 50 }, { def_mem_per_cpu = 400 }), less)
  local function managed(what, fields, all)
    local one, values = S.batch(fields)
    pillion.submit(one, all, S.ALICE)
    S.equal(values.partition, "shared", what)
    S.equal(values.min_mem_per_cpu, fields.min_mem_per_cpu, what)
    S.equal(values.min_mem_per_node, fields.min_mem_per_node, what)
  end
  managed("the same", job(), parts({ def_mem_per_cpu = 400 }, { def_mem_per_cpu = 400 }))
  managed("more", job(), parts({ def_mem_per_cpu = 400 }, { def_mem_per_cpu = 500 }))
  managed("nobody says what slurm.conf gives", job(), parts({ def_mem_per_node = 0 }, { def_mem_per_cpu = 50 }))
  managed("his own word", job({ min_mem_per_node = 700 }), parts({ def_mem_per_cpu = 400 }, {}))
  managed("all of a node", job({ min_mem_per_node = 0, partition = "gpu,long" }), parts({ def_mem_per_cpu = 400 }, {}))
  managed("the pool by name", job({ partition = "gpu,shared" }), parts({ def_mem_per_cpu = 400 }, { def_mem_per_cpu = 50 }))
end)

S.test("a list of QOS is read one by one", function()
  local function job(qos) return { tres_per_node = "gres/gpu:1", qos = qos } end
  untouched(job("normal,whole"), S.partitions({ shared = S.partition({ deny_qos = "whole" }) }), "does not admit the QOS whole")
  untouched(job("normal,whole"), S.partitions({ shared = S.partition({ allow_qos = "normal" }) }), "does not admit the QOS whole")
  pillion.configure({ unmanaged_qos = { "whole" } })
  untouched(job("whole,normal"), S.partitions(), "its QOS demands a whole GPU")
  pillion.configure({ unmanaged_qos = {} })
  local many = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q" }
  untouched(job(table.concat(many, ",")), S.partitions(), "it names too many QOS")
  local before = os.clock()
  pillion.submit(S.batch(job(string.rep("a,", 500000))), S.partitions({ shared = S.partition({ deny_qos = "b,c,d,e,f,g,h" }) }), S.ALICE)
  S.equal(os.clock() - before < 0.5, true, "seconds")
  local managed, values = S.batch(job("normal,long"))
  pillion.submit(managed, S.partitions({ shared = S.partition({ allow_qos = "long,normal" }) }), S.ALICE)
  S.equal(values.partition, "shared")
end)

S.done()
