//! Fields whose JSON is not that of their type on the wire: scripts have read them so since the first release.

#![expect(clippy::ref_option, reason = "what serde calls gets a reference to the field")]

use crate::{CapFractions, MetricStatus, Profile};
use pillion_core::report::JobSummary;
use pillion_core::setup::NodeSetup;
use pillion_proto::v1 as wire;
use serde::{Serialize, Serializer};

/// `[ours, the partner's]`.
pub(crate) fn caps<S: Serializer>(caps: &Option<CapFractions>, serializer: S) -> Result<S::Ok, S::Error> {
    let CapFractions { own, other } = caps.unwrap_or_default();
    (own, other).serialize(serializer)
}

/// `"0"` where a job is not shown.
pub(crate) fn job_or_zero<S: Serializer>(job_id: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(job_id.as_deref().unwrap_or("0"))
}

/// `""` where a workload is not shown.
pub(crate) fn or_empty<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}

/// As the domain has it; what a later agent measured in another way is left out, as what was not measured.
pub(crate) fn run<S: Serializer>(run: &Option<wire::JobSummary>, serializer: S) -> Result<S::Ok, S::Error> {
    run.clone().and_then(|run| JobSummary::try_from(run).ok()).serialize(serializer)
}

/// As the domain has it.
pub(crate) fn setup<S: Serializer>(
    setup: &Option<wire::NodeSetup>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    setup.clone().map(NodeSetup::from).serialize(serializer)
}

/// Without the name of its workload, which stands beside it.
pub(crate) fn profile<S: Serializer>(profile: &Option<Profile>, serializer: S) -> Result<S::Ok, S::Error> {
    profile.as_ref().and_then(|profile| profile.read().ok()).serialize(serializer)
}

/// An object of metrics by name.
pub(crate) fn metrics<S: Serializer>(metrics: &[MetricStatus], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(metrics.iter().map(|metric| (&metric.metric, metric)))
}

#[cfg(test)]
mod tests {
    use crate::{
        Candidate, DeviceStatus, DrainOutcome, DrainedPlace, JobResponse, JobStatus, MetricStatus, QueueJob,
        QueueRequest, QueueResponse,
    };
    use prost::Message as _;
    use serde_json::json;

    #[test]
    fn a_partner_who_is_not_shown_reads_as_it_always_did() {
        let hidden = serde_json::to_value(Candidate::default()).expect("JSON");
        assert_eq!(
            (&hidden["partner"], &hidden["workload"], &hidden["cap_fractions"]),
            (&json!("0"), &json!(""), &json!([null, null]))
        );
        assert_eq!(hidden.get("workload_name"), None);
    }

    #[test]
    fn what_an_answer_is_about_stands_beside_what_is_said_of_it() {
        assert_eq!(serde_json::to_value(JobResponse::default()).expect("JSON"), json!({ "found": false }));
        let told = JobResponse { found: true, status: Some(JobStatus::default()) };
        assert_eq!(serde_json::to_value(told).expect("JSON")["restart_count"], 0);
        let place = DrainedPlace { node: "n1".to_owned(), ..DrainedPlace::default() };
        let drained = DrainOutcome { drain: Some(place), ..DrainOutcome::default() };
        assert_eq!(serde_json::to_value(drained).expect("JSON")["node"], "n1");
    }

    #[test]
    fn metrics_are_an_object_in_their_order() {
        let metric = |metric: &str| MetricStatus {
            metric: metric.to_owned(),
            source: "nvml".to_owned(),
            quality: "fine".to_owned(),
        };
        let metrics = vec![metric("power_watts"), metric("energy_joules")];
        let text = serde_json::to_string(&DeviceStatus { metrics, ..DeviceStatus::default() }).expect("JSON");
        let fine = r#"{"source":"nvml","quality":"fine"}"#;
        assert!(
            text.contains(&format!(r#""metrics":{{"power_watts":{fine},"energy_joules":{fine}}},"#)),
            "{text}"
        );
    }

    #[test]
    fn a_field_of_a_later_release_is_passed_over() {
        let jobs = vec![QueueJob { job_id: "7".to_owned(), ..QueueJob::default() }];
        let mut bytes = QueueResponse { jobs: jobs.clone() }.encode_to_vec();
        // Field 900, a text: no message here has one.
        prost::encoding::string::encode(900, &"of tomorrow".to_owned(), &mut bytes);
        assert_eq!(QueueResponse::decode(bytes.as_slice()).expect("read").jobs, jobs);
        assert_eq!(QueueRequest::decode([].as_slice()).expect("read"), QueueRequest::default());
    }
}
