//! A site with ways of its own: a `SlurmUser` that is not `slurm`, `auth/slurm` and no MUNGE (so our own key: docs/admin-guide.md, "Who
//! proves what"), rules in its `job_submit.lua`, a Prolog, and a summary of each job that it writes where our mark stands. Setup leaves
//! these as they are and says what to add; two that ask share; a job that asks for nothing finds what it found, and Slurm records of it
//! what it recorded.

use crate::plain_job::plain_job;
use crate::quickstart::edit_slurm_conf;
use crate::site::{SLURM_CONF, SOON, Site, USER};
use crate::{CONFIG, DEVICES, WORKLOADS, load, pair, state_of};
use pillion_tests::wait::{Look, wait_for, wait_until};
use serde_json::Value;

const SLURM_KEY: &str = "/etc/slurm/slurm.key";
/// Said, though it is what is taken where munged is not.
const BY_KEY: (&str, &str) = ("#method = \"munge\"", "method = \"key\"");
const OUR_KEY: &str = "/etc/pillion/auth.key";

/// Who Slurm runs as here.
const SLURM_USER: &str = "hpc";

/// The site's: no job without a time limit.
const RULE: &str = "if job_desc.time_limit == slurm.NO_VAL then slurm.log_user('the site wants a time limit') return slurm.ERROR end";
const SUBMIT: &str = "/etc/slurm/job_submit.lua";
const PROLOG: &str = "/etc/slurm/site-prolog";
const PROLOG_LOG: &str = "/var/log/site-prolog";

/// Its rules and its Prolog, before anybody has heard of Pillion.
fn has_ways(site: &Site) {
    let lua = format!(
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n  {RULE}\n  return slurm.SUCCESS\nend\n\
         function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
    );
    site.controller.writes(SUBMIT, &lua).unwrap();
    for node in &site.nodes {
        node.writes(PROLOG, &format!("#!/bin/sh\necho \"$SLURM_JOB_ID\" >>{PROLOG_LOG}\nexit 0\n")).unwrap();
        node.types(&format!("chmod 755 {PROLOG}")).unwrap();
    }
    let own = format!("JobSubmitPlugins=lua\nProlog={PROLOG}\nNodeName=n1");
    site.controller.edits(SLURM_CONF, &[("NodeName=n1", own.as_str())]).unwrap();
}

/// What the site's ways do: the rule refuses, and each job has its line of the Prolog.
fn do_what_they_did(site: &Site) {
    let said = site.controller.types_as(USER, "sbatch -w n2 --wrap true 2>&1 || true").unwrap();
    assert!(said.contains("the site wants a time limit"), "{said}");
    let job = site.submits("-w n2 -t 1 --wrap true");
    site.wait_for_job(&job, "COMPLETED");
    let lines = site.machine("n2").types(&format!("cat {PROLOG_LOG}")).unwrap();
    assert!(lines.lines().any(|line| line == job), "{job} in {lines}");
}

/// What setup says is to be done by hand, done.
fn adds_by_hand(site: &Site, said: &str) {
    assert!(said.contains("job_submit.lua is the site's own: add the lines of"), "{said}");
    let example = "cat /usr/share/doc/pillion-slurm/examples/job_submit.lua.example";
    let example = site.controller.types(example).unwrap();
    let call = "  return ask_pillion(\"submit\"";
    assert!(example.contains(call), "{example}");
    site.controller.writes(SUBMIT, &example.replace(call, &format!("  {RULE}\n{call}"))).unwrap();
    let line = said.split_once(&format!("Prolog={PROLOG} is the site's own: add '")).expect(said).1;
    let line = line.split_once('\'').expect(said).0;
    for node in &site.nodes {
        node.edits(PROLOG, &[("exit 0", &format!("{line}\nexit 0"))]).unwrap();
    }
}

/// Slurm as a user of the site's own.
fn change_slurm_user(site: &Site) {
    for machine in site.machines() {
        machine
            .types(&format!("useradd --system --user-group --no-create-home --uid 2002 {SLURM_USER}"))
            .unwrap();
    }
    let user = format!("SlurmUser={SLURM_USER}");
    site.controller.edits(SLURM_CONF, &[("SlurmUser=slurm", user.as_str())]).unwrap();
    let unit = "/etc/systemd/system/slurmctld.service.d";
    site.controller
        .types(&format!(
            "systemctl stop slurmctld
             mkdir -p {unit} && printf '[Service]\\nUser={SLURM_USER}\\nGroup={SLURM_USER}\\n' >{unit}/user.conf
             systemctl daemon-reload
             chown -R {SLURM_USER}: /var/lib/slurm /var/log/slurm"
        ))
        .unwrap();
}

/// Our services run as that user, who was named to Slurm and to nobody else.
fn runs_as_slurm_user(site: &Site) {
    for program in ["slurmctld", "pillion-scheduler"] {
        let user = site.controller.types(&format!("ps -o user= -C {program} | sort -u")).unwrap();
        assert_eq!(user.trim(), SLURM_USER, "{program}");
    }
    assert_eq!(state_of(&site.controller, "pillion-rescue.service", "User"), SLURM_USER);
}

/// Slurm by its own key, and no munged on any host.
fn convert(site: &Site) {
    let by_key = ("AuthType=auth/munge", "AuthType=auth/slurm\nCredType=auth/slurm");
    site.controller.edits(SLURM_CONF, &[by_key]).unwrap();
    edit_slurm_conf(&site.controller);
    site.controller.types(&format!("dd if=/dev/urandom of={SLURM_KEY} bs=1024 count=1 status=none")).unwrap();
    brings_key(site, SLURM_KEY);
    site.bring_slurm_files(&["slurm.conf"]);
    for machine in site.machines() {
        machine
            .types(&format!("chown {SLURM_USER} {SLURM_KEY} && systemctl mask --now munge.service"))
            .unwrap();
    }
    site.restarts_slurm();
    let said = site.controller.types("scontrol show config | grep -i '^AuthType'").unwrap();
    assert!(said.contains("auth/slurm"), "{said}");
}

/// A secret of the controller, on every node.
fn brings_key(site: &Site, path: &str) {
    let key = site
        .controller
        .types(&format!("chmod 600 {path} && chown {SLURM_USER} {path} && base64 {path}"))
        .unwrap();
    for node in &site.nodes {
        node.types(&format!("install -m 600 /dev/null {path} && base64 -d >{path} <<'END'\n{key}END"))
            .unwrap();
    }
}

/// Pillion on the controller and on the pool's node, as the guide says for such a site.
fn install(site: &Site) {
    for machine in site.machines() {
        machine
            .types(
                "echo 'deb [trusted=yes] file:///srv/pillion ./' >/etc/apt/sources.list.d/pillion.list && apt-get update",
            )
            .unwrap();
    }
    let brings = |name: &str, packages: &str| {
        site.machine(name).types(&format!("apt-get install -y pillion-slurm {packages}")).unwrap();
    };
    brings("controller", "pillion-scheduler pillion-spank");
    brings("n1", "pillion-agent pillion-client pillion-spank");
    // It is not the pool's, and its jobs ask for nothing: here the plugin is loaded beside them.
    brings("n2", "pillion-spank");
    let said = site.controller.types("pillion setup controller --nodes n1 --yes 2>&1").unwrap();
    adds_by_hand(site, &said);
    site.controller.types(&format!("pillion keygen {OUR_KEY}")).unwrap();
    brings_key(site, OUR_KEY);
    let on = [("mode = \"off\"", "mode = \"active\""), BY_KEY];
    site.controller.edits(CONFIG, &on).unwrap();
    site.bring_slurm_files(&["slurm.conf", "gres.conf", "plugstack.conf"]);
    site.restarts_slurm();
    site.controller.types("systemctl restart pillion-scheduler").unwrap();
    let node = site.machine("n1");
    node.writes("/etc/pillion/devices.toml", DEVICES).unwrap();
    node.types("systemctl enable --now pillion-simulated-device").unwrap();
    node.types("pillion setup node --backend simulated --yes").unwrap();
    let text = node.types(&format!("cat {CONFIG}")).unwrap();
    node.writes(CONFIG, &text.replace(BY_KEY.0, BY_KEY.1)).unwrap();
    node.types("systemctl restart pillion-agent").unwrap();
    site.wait_for_agent();
}

/// The plugin is in the slurmstepd of a job that asks for nothing, so what such a job finds is found beside it.
fn loads_the_plugin(site: &Site) {
    let job = site.submits("-w n2 --gpus=1 -t 5 --wrap 'until test -e go; do sleep 0.2; done'");
    site.wait_for_job(&job, "RUNNING");
    let node = site.machine("n2");
    let loaded = "grep -q ' /usr/lib/pillion/pillion.*[.]so$' /dev/null $(pgrep slurmstepd | sed 's,.*,/proc/&/maps,')";
    wait_until("plugin in slurmstepd", SOON, || Ok(node.types(loaded).is_ok())).unwrap();
    node.types(&format!("touch /home/{USER}/go")).unwrap();
    site.wait_for_job(&job, "COMPLETED");
}

/// How far this job's part in its decision is, as the scheduler has seen it.
fn member_state(site: &Site, job: &str) -> String {
    let said = site.controller.types(&format!("pillion explain --json {job}")).unwrap();
    let explained: Value = serde_json::from_str(&said).expect(&said);
    let decisions = explained["decisions"].as_array().into_iter().flatten();
    let mut members = decisions.flat_map(|decision| decision["members"].as_array().into_iter().flatten());
    let member = members.find(|member| member["job_id"] == job);
    member.and_then(|member| member["state"].as_str()).unwrap_or("none").to_owned()
}

/// Waits until the scheduler has seen it in this state.
fn wait_for_member(site: &Site, job: &str, state: &str) {
    wait_for(&format!("job {job} that is {state}, as decided"), SOON, || {
        let seen = member_state(site, job);
        Ok(if seen == state { Look::Ready(()) } else { Look::NotYet(seen) })
    })
    .unwrap();
}

/// Two of the site's users share, and jobstats, as sites of before have it, writes its summary over our mark while they run: both
/// go on and end as if it had not, and the summary is what Slurm records.
fn share_and_are_summed_up(site: &Site) {
    // A minute of real time, and half of one more beside each other.
    let pair = pair(site, 3_600);
    let summary = |job: &str| format!("JS1:H4sIAAAA{job}");
    for job in &pair {
        wait_for_member(site, job, "running");
        let words = format!("JobId={job} AdminComment={}", summary(job));
        site.controller.types(&format!("scontrol update {words}")).unwrap();
    }
    for (job, name) in pair.iter().zip(WORKLOADS) {
        site.wait_for_job(job, "COMPLETED");
        assert_eq!(site.job(job, "AdminComment"), summary(job));
        assert_eq!(site.job(job, "Restarts"), "0", "job {job}");
        let seen = site.wrote("n1", &format!("{name}.env"));
        assert!(is_decided(&seen), "{seen}");
        wait_for_member(site, job, "ended");
    }
    site.controller.types("pillion undrain n1:g1").unwrap();
}

/// Whether a job was told which decision it runs by.
fn is_decided(environment: &str) -> bool {
    environment.lines().any(|line| line.starts_with("PILLION_DECISION=") && !line.ends_with('='))
}

#[test]
fn a_site_without_munge_and_with_rules_of_its_own_is_served_as_it_is() {
    let site = Site::new();
    has_ways(&site);
    change_slurm_user(&site);
    convert(&site);
    do_what_they_did(&site);
    let before = plain_job(&site);
    install(&site);
    site.wait_until_active();
    runs_as_slurm_user(&site);
    let job = load(&site, "resnet50-infer", 600, "5");
    site.wait_for_job(&job, "COMPLETED");
    let seen = site.wrote("n1", "resnet50-infer.env");
    assert!(is_decided(&seen), "{seen}");
    // Its user asks on the controller, where he is known by his socket.
    let said = site.controller.types_as(USER, &format!("pillion why {job}")).unwrap();
    assert!(said.contains(&job), "{said}");
    share_and_are_summed_up(&site);
    do_what_they_did(&site);
    loads_the_plugin(&site);
    assert_eq!(plain_job(&site), before, "of a job that asked for nothing");
    let said = site.controller.types("pillion doctor --quiet 2>&1 || true").unwrap();
    assert!(!said.contains("FAIL"), "{said}");
}
