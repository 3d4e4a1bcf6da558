//! `NodeSetup`.

use super::field;
use crate::v1 as wire;
use pillion_core::setup::{LoadedPlugin, NodeSetup, SetupFault, SetupFaultKind};

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| field::words(text))
}

/// Never fails: what a newer agent knows is shown in its own words.
impl From<wire::NodeSetup> for NodeSetup {
    fn from(wire: wire::NodeSetup) -> Self {
        let wire::NodeSetup { faults, plugins } = wire;
        Self {
            faults: faults
                .into_iter()
                .take(field::TENANTS_MAX)
                .map(|wire::SetupFault { kind, detail }| SetupFault {
                    kind: kind.parse().unwrap_or(SetupFaultKind::Other),
                    detail: field::words(&detail),
                })
                .collect(),
            plugins: plugins
                .into_iter()
                .take(field::TENANTS_MAX)
                .map(|wire::LoadedPlugin { path, built_for, error }| LoadedPlugin {
                    path: field::words(&path),
                    built_for: some_text(&built_for),
                    error: some_text(&error),
                })
                .collect(),
        }
    }
}

impl From<NodeSetup> for wire::NodeSetup {
    fn from(setup: NodeSetup) -> Self {
        let NodeSetup { faults, plugins } = setup;
        Self {
            faults: faults
                .into_iter()
                .map(|SetupFault { kind, detail }| wire::SetupFault { kind: kind.to_string(), detail })
                .collect(),
            plugins: plugins
                .into_iter()
                .map(|LoadedPlugin { path, built_for, error }| wire::LoadedPlugin {
                    path,
                    built_for: built_for.unwrap_or_default(),
                    error: error.unwrap_or_default(),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_a_newer_agent_knows_keeps_its_words() {
        let fault = wire::SetupFault { kind: "no-cake".to_owned(), detail: "the cake is a lie".to_owned() };
        let setup = NodeSetup::from(wire::NodeSetup { faults: vec![fault], plugins: Vec::new() });
        let known = SetupFault { kind: SetupFaultKind::Other, detail: "the cake is a lie".to_owned() };
        assert_eq!(setup.faults, [known]);
    }
}
