//! What other machines reach without a proof of who asks.

use super::Facts;
use crate::doctor::finding::{Check, Finding};
use std::net::SocketAddr;

/// The page, in plain HTTP.
pub(super) fn web(facts: &Facts) -> Vec<Finding> {
    let check = Check("web");
    let Some(address) = facts.config.web.listen_address else { return vec![check.ok("there is no page")] };
    if !is_open(address) {
        return vec![check.ok(format!("{address}: it is opened on this machine only"))];
    }
    vec![check.fail(
        format!("{address} can be reached from other machines, in plain HTTP: whoever comes reads of nodes, devices and sums"),
        "set web.listen_address = \"127.0.0.1:6821\" and web.allow_remote = false in /etc/pillion/pillion.toml, and have users \
         reach it by ssh -L",
    )]
}

/// What Prometheus reads. It tells of no job and no user, and Prometheus runs on another machine more often than not.
pub(super) fn metrics(facts: &Facts) -> Vec<Finding> {
    let check = Check("metrics");
    let config = &facts.config;
    let pages = [("metrics", &config.metrics), ("agent.metrics", &config.agent.metrics)];
    let open = pages.into_iter().filter_map(|(name, page)| {
        let address = page.listen_address.filter(|address| is_open(*address))?;
        Some(check.warn(
            format!("{name}.listen_address = \"{address}\": whoever reaches it reads of nodes and devices"),
            "let Prometheus alone reach it, by a firewall or an address of a network of its own",
        ))
    });
    check.ok_unless(open.collect(), "nothing is told to other machines")
}

fn is_open(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
