//! A site without MUNGE: `auth/slurm`, and our own key (docs/admin-guide.md, "Who proves what").

use crate::site::{SLURM_CONF, SOON, Site, USER};
use crate::{CONFIG, DEVICES, EDITED, load};
use pillion_tests::wait::wait_until;

const SLURM_KEY: &str = "/etc/slurm/slurm.key";
/// Said, though it is what is taken where munged is not.
const BY_KEY: (&str, &str) = ("#method = \"munge\"", "method = \"key\"");
const OUR_KEY: &str = "/etc/pillion/auth.key";

/// Slurm by its own key, and no munged on any host.
fn convert(site: &Site) {
    let edits = [("AuthType=auth/munge", "AuthType=auth/slurm\nCredType=auth/slurm"), EDITED[0]];
    site.controller.edits(SLURM_CONF, &edits).unwrap();
    site.controller.types(&format!("dd if=/dev/urandom of={SLURM_KEY} bs=1024 count=1 status=none")).unwrap();
    brings_key(site, SLURM_KEY, "slurm");
    site.bring_slurm_files(&["slurm.conf"]);
    for machine in site.machines() {
        machine.types(&format!("chown slurm {SLURM_KEY} && systemctl mask --now munge.service")).unwrap();
    }
    site.restarts_slurm();
    let said = site.controller.types("scontrol show config | grep -i '^AuthType'").unwrap();
    assert!(said.contains("auth/slurm"), "{said}");
}

/// A secret of the controller, on every node.
fn brings_key(site: &Site, path: &str, owner: &str) {
    let key =
        site.controller.types(&format!("chmod 600 {path} && chown {owner} {path} && base64 {path}")).unwrap();
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
    brings("n2", "");
    site.controller.types("pillion setup controller --nodes n1 --yes").unwrap();
    site.controller.types(&format!("pillion keygen {OUR_KEY}")).unwrap();
    brings_key(site, OUR_KEY, "slurm");
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

#[test]
fn a_site_without_munge_is_served_by_a_key() {
    let site = Site::new();
    convert(&site);
    install(&site);
    wait_until("heartbeat of an active scheduler", SOON, || {
        Ok(site.controller.types("cat /run/pillion/heartbeat || true")?.contains("mode=active"))
    })
    .unwrap_or_else(|error| panic!("{error:?}\n{}", site.logs()));
    let job = load(&site, "resnet50-infer", 600, "5");
    site.wait_for_job(&job, "COMPLETED");
    let seen = site.wrote("n1", "resnet50-infer.env");
    assert!(seen.lines().any(|line| line.starts_with("PILLION_DECISION=") && !line.ends_with('=')), "{seen}");
    // Its user asks on the controller, where he is known by his socket.
    let said = site.controller.types_as(USER, &format!("pillion why {job}")).unwrap();
    assert!(said.contains(&job), "{said}");
    let said = site.controller.types("pillion doctor --quiet 2>&1 || true").unwrap();
    assert!(!said.contains("FAIL"), "{said}");
}
