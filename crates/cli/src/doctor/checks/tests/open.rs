//! What other machines reach without a proof.

use super::{Broken, FAIL, Facts, Status, WARN, examine, sound};
use std::net::SocketAddr;

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 6821);
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6821);

pub(super) const BROKEN: [Broken; 3] = [
    ("web", FAIL, "0.0.0.0:6821 can be reached from other machines", "ssh -L", |f| {
        f.config.web.listen_address = Some(ANYWHERE);
    }),
    ("metrics", WARN, "metrics.listen_address = \"0.0.0.0:6821\"", "by a firewall", |f| {
        f.config.metrics.listen_address = Some(ANYWHERE);
    }),
    ("metrics", WARN, "agent.metrics.listen_address = \"0.0.0.0:6821\"", "by a firewall", |f| {
        f.config.agent.metrics.listen_address = Some(ANYWHERE);
    }),
];

#[test]
fn what_this_machine_alone_reaches_is_no_finding() {
    // IPv4's in IPv6's words is the same.
    for here in [HERE, "[::1]:6821".parse().unwrap(), "[::ffff:127.0.0.1]:6821".parse().unwrap()] {
        let mut facts: Facts = sound();
        facts.config.web.listen_address = Some(here);
        facts.config.metrics.listen_address = Some(here);
        let findings = examine(&facts);
        let of_doors = findings.iter().filter(|finding| ["web", "metrics"].contains(&finding.check));
        let found: Vec<Status> = of_doors.map(|finding| finding.status).collect();
        assert_eq!(found, [Status::Ok; 2], "{here}");
    }
}
