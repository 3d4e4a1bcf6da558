use super::*;
use pillion_core::SlurmJobId;
use pillion_core::metric::{Metric, MetricSource};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1.0, 1.0..1e15, Just(0.1 + 0.2)]
}

fn workload() -> impl Strategy<Value = WorkloadKey> {
    ("[a-z]{1,8}", 0_u32..99).prop_map(|(user, digest)| WorkloadKey::new(format!("{user}/{digest:016x}")))
}

fn metrics() -> impl Strategy<Value = Metrics> {
    vec((0_usize..Metric::ALL.len(), 0.0..1.0), 0..5).prop_map(|values| {
        // Bytes are whole.
        let of =
            |metric: Metric, value: f64| if metric.word().contains("bytes") { value.round() } else { value };
        let values =
            values.into_iter().map(|(index, value)| (Metric::ALL[index], of(Metric::ALL[index], value)));
        values.collect::<Metrics>().from_source(MetricSource::NvmlGpm)
    })
}

prop_compose! {
    fn profile()(
        workload in workload(),
        run_count in 0_u32..1000,
        amounts in [option::of(amount()), option::of(amount()), option::of(amount()), option::of(amount())],
        at_cap in proptest::array::uniform9(option::of(amount())),
        counts in proptest::array::uniform9(0_u32..9),
        metrics in metrics(),
        bytes in [option::of(1_u64..1 << 40), option::of(1_u64..1 << 40), option::of(1_u64..1 << 40)],
        seconds in amount(),
    ) -> StoredProfile {
        let [duration, variation, throughput, energy] = amounts;
        let [peak, completed, ran_out] = bytes;
        StoredProfile {
            profile: WorkloadProfile {
                family: (run_count % 2 == 0).then(|| "résnet".to_owned()),
                run_count,
                duration_seconds: duration,
                duration_variation_fraction: variation,
                throughput_per_second: throughput,
                throughput_per_second_at_cap: at_cap,
                metrics,
                memory_bytes_peak: peak,
                memory_bytes_completed: completed,
                memory_bytes_ran_out: ran_out,
                process_count_peak: run_count / 7,
                process_memory_bytes_peak: None,
                energy_joules: energy,
                ..WorkloadProfile::empty(workload, "h100")
            },
            durations: Durations { run_count, deviation_squares: seconds },
            run_counts_at_cap: counts,
            updated_at: UnixTime::from_seconds(seconds),
        }
    }
}

prop_compose! {
    fn observation()(
        tenants in vec((workload(), option::of(0.0..=1.0), option::of(amount()), any::<bool>()), 2..=16),
        first in 1_u32..1000,
        power_watts in option::of(amount()),
        fits in any::<bool>(),
    ) -> ObservationRecord {
        let tenant = |(id, (workload, cap_fraction, speed_fraction, is_self_reported))| TenantRecord {
            start: JobStart { job_id: SlurmJobId::plain(id), restart_count: id % 3 },
            workload,
            cap_fraction,
            speed_fraction,
            speed_fraction_deviation: speed_fraction,
            is_self_reported,
        };
        ObservationRecord {
            device_model: "max-1550".to_owned(),
            mechanism: "ccs".to_owned(),
            ccs_mode: Some(2),
            power_watts,
            fits,
            recorded_at: UnixTime::from_epoch(first.into()),
            tenants: (first..).zip(tenants).map(tenant).collect(),
        }
    }
}

fn name() -> impl Strategy<Value = NameRecord> {
    (workload(), 0_u32..99, "[a-z学]{1,9}").prop_map(|(workload, uid, text)| NameRecord {
        workload,
        uid,
        name: WorkloadName::safe(&text).unwrap(),
        source: if uid % 2 == 0 { NameSource::Job } else { NameSource::Profile },
        named_at: UnixTime::from_epoch(uid.into()),
    })
}

fn archive() -> impl Strategy<Value = Archive> {
    (vec(profile(), 0..4), vec(name(), 0..4), vec(observation(), 0..4))
        .prop_map(|(profiles, names, observations)| Archive { profiles, names, observations })
}

fn text_of(archive: &Archive) -> Vec<u8> {
    let mut text = Vec::new();
    archive.write(&mut text, UnixTime::from_epoch(5)).unwrap();
    text
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(archive in archive()) {
        prop_assert_eq!(Archive::read(&*text_of(&archive)).unwrap(), archive);
    }

    #[test]
    fn a_file_that_was_cut_off_or_put_together_is_none(archive in archive(), other in archive(), part in 0.0..1.0) {
        let text = text_of(&archive);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in it")]
        let length = (text.len() as f64 * part) as usize;
        prop_assert!(Archive::read(&text[..length]).is_err());
        let both = [text, text_of(&other)].concat();
        prop_assert!(Archive::read(&*both).is_err());
    }

    /// Foreign text is an error and never a panic.
    #[test]
    fn any_byte_may_be_another_one(archive in archive(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = text_of(&archive);
        let at = at.index(text.len());
        text[at] = byte;
        let _ = Archive::read(&*text);
    }
}

#[test]
fn what_is_none_of_ours_is_refused_in_one_sentence() {
    let header = "{\"pillion_export\":1}\n";
    let tenant = |speed: &str| {
        format!(
            "{{\"start\":{{\"job_id\":\"7\",\"restart_count\":0}},\"workload\":\"a/1\",\"cap_fraction\":null,\
             \"speed_fraction\":{speed},\"speed_fraction_deviation\":null,\"is_self_reported\":false}}"
        )
    };
    let observation = |tenants: &[String]| {
        format!(
            "{header}{{\"observation\":{{\"device_model\":\"h100\",\"mechanism\":\"mps\",\"ccs_mode\":null,\"power_watts\":null,\
             \"fits\":true,\"recorded_at\":5,\"tenants\":[{}]}}}}\n",
            tenants.join(",")
        )
    };
    for (text, why) in [
        (String::new(), "does not begin as an export"),
        ("[]\n".to_owned(), "does not begin as an export"),
        (
            "{\"pillion_export\":7}\n".to_owned(),
            "written in format 7, and this program reads formats up to 1; import it with a later release",
        ),
        (format!("{header}{{\"what\":{{}}}}\n"), "line 2: unknown variant `what`"),
        (format!("{header}{}\n", "x".repeat(70_000)), "line 2: it is too long"),
        (
            format!("{header}{{\"end\":{{\"profiles\":1,\"names\":0,\"observations\":0}}}}\n"),
            "it is not whole",
        ),
        (observation(&[tenant("0.5")]), "line 2: an observation of fewer than two"),
        (observation(&[tenant("0.5"), tenant("-0.5")]), "line 2: an amount below nothing"),
        (observation(&[tenant("0.5"), tenant("1e999")]), "line 2: number out of range"),
        (
            format!(
                "{header}{{\"name\":{{\"workload\":\"a/1\",\"uid\":1,\"name\":\"\\u001b[2J\",\"source\":\"job\",\"named_at\":1}}}}\n"
            ),
            "line 2: a name that cannot be printed anywhere",
        ),
    ] {
        let error = Archive::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why) && error.lines().count() == 1, "{why}: {error}");
    }
}
