//! What a caller is told of others, asked as he asks.

use super::*;
use crate::testing::{self, NOW, at, device, hello};
use pillion_core::UserId;
use pillion_core::health::{DeviceFault, FaultKind};
use pillion_core::report::AgentHello;

const ALICE: Caller = Caller { uid: Some(UserId(1000)), is_operator: false };
const OPERATOR: Caller = Caller { uid: Some(UserId(0)), is_operator: true };

fn served() -> (Arc<Context>, OperatorServer) {
    let context = testing::context();
    let server = testing::operator(&context);
    (context, server)
}

fn asked<T>(question: T, caller: Caller) -> Request<T> {
    let mut request = Request::new(question);
    request.extensions_mut().insert(caller);
    request
}

/// As it was tried: `pillion status --json` told everybody whose job had held too much.
#[tokio::test]
async fn the_status_names_no_job_of_others_to_a_user() {
    let (context, server) = served();
    let greeting = AgentHello { devices: vec![device(1)], ..hello("n1") };
    let (stream, _orders) = context.agents.connect(&greeting, at(NOW));
    let detail = "job 4711 held more of it than its share allows, and was ended".to_owned();
    let faults = vec![DeviceFault { kind: FaultKind::Overused, detail, since: at(NOW) }];
    let condition = DeviceCondition {
        gres_type: GresType::new("g1"),
        faults,
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    };
    context.agents.set_conditions(&stream, &[condition]);
    for (caller, is_named) in [(ALICE, false), (OPERATOR, true)] {
        let status = server.status(asked(api::StatusRequest {}, caller)).await.unwrap().into_inner();
        let fault = &status.agents[0].devices[0].known_faults()[0];
        assert_eq!((fault.kind.as_str(), fault.detail.contains("4711")), ("overused", is_named), "{fault:?}");
    }
}
