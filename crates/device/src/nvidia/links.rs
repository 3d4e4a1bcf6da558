//! How the devices of a node reach each other, as NVML tells it.

use super::trouble::Trouble;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::{Device, Nvml};
use pillion_core::link::Link;

/// Two devices, each by its own index, and the way between them. Pairs of which NVML does not tell are left out.
///
/// # Errors
/// What NVML says where it cannot even count them.
pub(super) fn links(nvml: &Nvml) -> Result<Vec<(u32, u32, Link)>, Trouble> {
    let places: Vec<u32> = (0..nvml.device_count()?).collect();
    let mut found = Vec::new();
    for (at, first) in places.iter().enumerate() {
        let Ok(one) = nvml.device_by_index(*first) else { continue };
        for second in &places[at + 1..] {
            let Ok(other) = nvml.device_by_index(*second) else { continue };
            let [own, its] = [(&one, first), (&other, second)]
                .map(|(device, place)| device.minor_number().unwrap_or(*place));
            found.extend(between(&one, other).map(|link| (own, its, link)));
        }
    }
    Ok(found)
}

/// `None`: NVML does not tell. Of devices with MIG on it tells of no NVLink.
fn between(one: &Device<'_>, other: Device<'_>) -> Option<Link> {
    if matches!(one.p2p_status(&other, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok)) {
        return Some(Link::NvLink);
    }
    Some(match one.topology_common_ancestor(other).ok()? {
        TopologyLevel::Internal | TopologyLevel::Single => Link::Pix,
        TopologyLevel::Multiple => Link::Pxb,
        TopologyLevel::HostBridge => Link::Phb,
        TopologyLevel::Node => Link::Node,
        TopologyLevel::System => Link::Sys,
    })
}
