//! Who may join whom, and what the driver is told, over a driver of our own making.

use super::*;
use crate::share::tests::{capped, device, share};
use pillion_core::device::{DeviceProcess, Reading};
use pillion_core::{Fraction, JobStart, UserId};
use pillion_device::{CcsControl, MpsControl, MpsSettings, MpsState, MpsStatus};

/// A driver that writes down what it is told.
#[expect(clippy::struct_excessive_bools, reason = "each is something that a driver has or has not")]
struct Driver {
    told: Vec<String>,
    client_count: usize,
    is_card_busy: bool,
    /// Whether the device has fallen off the bus.
    is_gone: bool,
    /// What of it concerned partitions.
    partitions: Vec<String>,
    /// Whether its MPS daemons know static SM partitions.
    has_partitions: bool,
    /// Whether they give none out just now.
    has_no_partition_left: bool,
    /// Whether they serve several users.
    has_multi_user: bool,
    /// How the daemon that runs was started.
    running: Option<MpsSettings>,
    state: MpsState,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            told: Vec::new(),
            client_count: 0,
            is_card_busy: false,
            is_gone: false,
            partitions: Vec::new(),
            has_partitions: false,
            has_no_partition_left: false,
            has_multi_user: true,
            running: None,
            state: MpsState::Up,
        }
    }
}

impl Driver {
    fn answers(&self, index: u32) -> Result<(), DeviceError> {
        if self.is_gone {
            return Err(DeviceError::Gone { index, reason: "it has fallen off the bus".into() });
        }
        Ok(())
    }
}

impl Backend for Driver {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        Ok(Vec::new())
    }
    fn read(&mut self, _: u32) -> Result<Reading, DeviceError> {
        Ok(Reading::default())
    }
    fn processes(&mut self, _: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        Ok(Vec::new())
    }
    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        Some(self)
    }
    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        Some(self)
    }
}

impl MpsControl for Driver {
    fn prepare(&mut self, place: &MpsPlace, settings: &MpsSettings) -> Result<(), DeviceError> {
        let index = place.index;
        if settings.partitions && !self.has_partitions {
            return Err(DeviceError::Unsupported { index, reason: "it does not know -S".into() });
        }
        if settings.multi_user && !self.has_multi_user {
            return Err(DeviceError::Unsupported {
                index,
                reason: "it does not know -multiuser-server".into(),
            });
        }
        let running = self.running.as_ref().filter(|_| self.state.takes_clients());
        if running.is_some_and(|running| !running.can_become(settings)) {
            return Err(DeviceError::Busy { index, reason: "other settings".into() });
        }
        if running.is_some() {
            self.running = Some(settings.clone());
            return Ok(());
        }
        self.told.push(format!("start {index} {}", settings.pipe_directory.display()));
        self.running = Some(settings.clone());
        self.state = MpsState::Up;
        Ok(())
    }
    fn release(&mut self, place: &MpsPlace) -> Result<(), DeviceError> {
        let index = place.index;
        self.answers(index)?;
        if self.client_count > 0 {
            return Err(DeviceError::Busy { index, reason: "clients".into() });
        }
        self.told.push(format!("stop {index}"));
        self.running = None;
        Ok(())
    }
    fn status(&mut self, _: &MpsPlace) -> Result<Option<MpsStatus>, DeviceError> {
        let status = |settings: MpsSettings| MpsStatus {
            settings,
            state: self.state,
            server_uid: None,
            client_pids: Vec::new(),
        };
        Ok(self.running.clone().map(status))
    }
    fn add_partition(&mut self, _: &MpsPlace, tenant: &str, cap: Fraction) -> Result<String, DeviceError> {
        if self.has_no_partition_left {
            return Err(DeviceError::Busy { index: 3, reason: "all chunks of it are taken".into() });
        }
        self.partitions.push(format!("add {tenant} {}", cap.value()));
        Ok(format!("GPU-3/{tenant}"))
    }
    fn keep_partitions(&mut self, _: &MpsPlace, tenants: &BTreeSet<String>) -> Result<(), DeviceError> {
        self.partitions.push(format!("keep {tenants:?}"));
        Ok(())
    }
    fn terminate_client(&mut self, _: &MpsPlace, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn instances(&mut self, _: u32) -> Result<Vec<pillion_core::DeviceUuid>, DeviceError> {
        Ok(Vec::new())
    }
    fn sets(&mut self) -> Result<Vec<MpsPlace>, DeviceError> {
        Ok(Vec::new())
    }
}

impl CcsControl for Driver {
    fn status(&mut self, _: u32) -> Result<Option<u8>, DeviceError> {
        Ok(None)
    }
    fn prepare(&mut self, index: u32, mode: u8) -> Result<(), DeviceError> {
        self.answers(index)?;
        if self.is_card_busy {
            return Err(DeviceError::Busy { index, reason: "the other tile".into() });
        }
        self.told.push(format!("ccs {index} {mode}"));
        Ok(())
    }
}

fn refused(device: &DeviceDescription, others: &[Share], share: &Share) -> String {
    admit(device, others.iter(), share, false).expect_err("must be refused").to_string()
}

#[test]
fn a_device_is_shared_its_own_way_or_not_at_all() {
    let (mps, ccs, none) =
        (share(1, Mechanism::Mps), share(2, Mechanism::Ccs), share(3, Mechanism::TimeSliced));
    let nvidia = device(Mechanism::Mps);
    assert_eq!(refused(&nvidia, &[], &ccs), "device g3 can be shared by mps, not by ccs");
    assert!(admit(&nvidia, [].iter(), &none, false).is_ok(), "alone on it");
    assert_eq!(
        refused(&nvidia, &[none], &mps),
        "start 3+0 holds device g3 by none; mps is possible when it has ended"
    );
    assert!(admit(&nvidia, [share(4, Mechanism::Mps)].iter(), &mps, false).is_ok());
}

#[test]
fn users_share_by_mps_only_where_the_site_says_so() {
    let host = share(1, Mechanism::Mps);
    let other = Share { uid: UserId(1001), ..share(2, Mechanism::Mps) };
    let nvidia = device(Mechanism::Mps);
    assert_eq!(
        refused(&nvidia, std::slice::from_ref(&host), &other),
        "device g3 serves another user, and mps.multi_user is off on this node"
    );
    assert!(admit(&nvidia, [host].iter(), &other, true).is_ok());
}

#[test]
fn a_card_has_one_mode() {
    let host = share(1, Mechanism::Ccs);
    let intel = device(Mechanism::Ccs);
    let four = Share { sharing: Sharing::Ccs { mode: 4 }, ..share(2, Mechanism::Ccs) };
    assert_eq!(
        refused(&intel, std::slice::from_ref(&host), &four),
        "device g3 is in ccs mode 2 while anybody runs; mode 4 is possible when it is free"
    );
    let restarted = Share { sharing: Sharing::Ccs { mode: 4 }, ..host.clone() };
    assert!(admit(&intel, [host].iter(), &restarted, false).is_ok(), "its own earlier share is no neighbour");
}

#[test]
fn limits_that_leave_nothing_are_refused() {
    let nvidia = device(Mechanism::Mps);
    assert!(refused(&nvidia, &[], &capped(1, 0.0)).contains("no compute unit"));
    let free = share(1, Mechanism::Mps);
    let memory = Share { sharing: free.sharing.limited_to(Some(1000)), ..free };
    assert!(refused(&nvidia, &[], &memory).contains("below one MiB"));
}

#[test]
fn a_daemon_comes_with_the_first_tenant_and_goes_when_its_clients_have() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let tenant = share(1, Mechanism::Mps);
    let mut driver = Driver::default();
    let mut mechanisms =
        Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, std::slice::from_ref(&tenant));
    mechanisms.prepare(&mut driver, &devices, [].iter(), &tenant).unwrap();
    let pipe = (mechanisms.mps_pipe_finder())(&tenant);
    assert!(pipe.is_dir());
    assert_eq!(driver.told, [format!("start 3 {}", pipe.display())]);
    mechanisms.settle(&mut driver, &devices, &[]);
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [tenant.clone()].iter());
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told.len(), 1, "a tenant is left");
    driver.client_count = 1;
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [].iter());
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told.len(), 1, "a client is left");
    driver.client_count = 0;
    mechanisms.settle(&mut driver, &devices, &[]);
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told[1..], ["stop 3"]);
}

#[test]
fn limits_follow_the_tenants_as_they_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let limited = |job: u32, cap: f64, gib: u64| {
        let share = capped(job, cap);
        Share { sharing: share.sharing.limited_to(Some(gib << 30)), ..share }
    };
    let (host, joiner) = (limited(1, 0.6, 8), limited(2, 0.4, 2));
    let mut driver = Driver::default();
    let mut mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
    let holds = |driver: &Driver| {
        let settings = driver.running.clone().unwrap();
        (settings.cap_default.map(Fraction::value), settings.memory_limit_bytes_default)
    };
    mechanisms.prepare(&mut driver, &devices, [].iter(), &joiner).unwrap();
    assert_eq!(holds(&driver), (Some(0.4), Some(2 << 30)));
    mechanisms.prepare(&mut driver, &devices, [joiner.clone()].iter(), &host).unwrap();
    assert_eq!(holds(&driver), (Some(0.6), Some(8 << 30)));
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [joiner.clone()].iter());
    mechanisms.settle(&mut driver, &devices, std::slice::from_ref(&joiner));
    assert_eq!(holds(&driver), (Some(0.4), Some(2 << 30)), "the larger has left");
}

#[test]
fn a_new_tenant_stops_the_draining() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let mut driver = Driver { client_count: 1, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
    mechanisms.settle(&mut driver, &devices, &[]);
    mechanisms.prepare(&mut driver, &devices, [].iter(), &share(1, Mechanism::Mps)).unwrap();
    driver.client_count = 0;
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told.len(), 1, "started, not stopped");
}

#[test]
fn ccs_tells_the_driver_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Ccs)];
    let mut driver = Driver::default();
    let mut mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
    mechanisms.prepare(&mut driver, &devices, [].iter(), &share(1, Mechanism::Ccs)).unwrap();
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told, ["ccs 3 2"]);
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [].iter());
    mechanisms.settle(&mut driver, &devices, &[]);
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!(driver.told[1..], ["ccs 3 1"], "the next job has the whole card");
}

#[test]
fn who_does_not_share_gets_no_part_of_a_card() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Ccs)];
    let mut driver = Driver::default();
    let mut mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
    mechanisms.prepare(&mut driver, &devices, [].iter(), &share(1, Mechanism::Ccs)).unwrap();
    driver.is_card_busy = true;
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [].iter());
    mechanisms.settle(&mut driver, &devices, &[]);
    let alone = share(2, Mechanism::TimeSliced);
    let refused = mechanisms.prepare(&mut driver, &devices, [].iter(), &alone).unwrap_err();
    assert!(matches!(refused, MechanismError::Device(DeviceError::Busy { index: 3, .. })), "{refused}");
    driver.is_card_busy = false;
    mechanisms.prepare(&mut driver, &devices, [].iter(), &alone).unwrap();
    assert_eq!(driver.told, ["ccs 3 2", "ccs 3 1"]);
    driver.is_card_busy = true;
    mechanisms.prepare(&mut driver, &devices, [].iter(), &alone).unwrap();
}

#[test]
fn a_device_that_was_away_when_its_last_tenant_left_is_whole_when_it_is_back() {
    for (mechanism, undone) in [(Mechanism::Ccs, "ccs 3 1"), (Mechanism::Mps, "stop 3")] {
        let directory = tempfile::tempdir().unwrap();
        let devices = [device(mechanism)];
        let mut driver = Driver::default();
        let mut mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
        mechanisms.prepare(&mut driver, &devices, [].iter(), &share(1, mechanism)).unwrap();
        driver.is_gone = true;
        mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [].iter());
        for _ in 0..100 {
            mechanisms.settle(&mut driver, &devices, &[]);
        }
        assert_eq!(driver.told.len(), 1, "it is away");
        driver.is_gone = false;
        for _ in 0..100 {
            mechanisms.settle(&mut driver, &devices, &[]);
        }
        assert_eq!(driver.told[1..], [undone], "once");
    }
}

const SITE_WANTS_PARTITIONS: MpsPolicy = MpsPolicy { multi_user: false, static_partitions: true };

#[test]
fn a_site_that_wants_partitions_has_one_a_tenant_until_it_left() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let (host, joiner) = (capped(1, 0.6), capped(2, 0.4));
    let mut driver = Driver { has_partitions: true, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    let prepared = mechanisms.prepare(&mut driver, &devices, [].iter(), &host).unwrap();
    assert_eq!(prepared.partition.as_deref(), Some("GPU-3/1+0"));
    mechanisms.prepare(&mut driver, &devices, [host.clone()].iter(), &joiner).unwrap();
    let told = |driver: &mut Driver| std::mem::take(&mut driver.partitions);
    let expected = [r#"keep {"1+0"}"#, "add 1+0 0.6", r#"keep {"1+0", "2+0"}"#, "add 1+0 0.6", "add 2+0 0.4"];
    assert_eq!(told(&mut driver), expected);
    mechanisms.left(&devices[0].gres_type.clone().into(), devices[0].mechanism, [joiner.clone()].iter());
    for _ in 0..2 {
        mechanisms.settle(&mut driver, &devices, std::slice::from_ref(&joiner));
    }
    assert_eq!(told(&mut driver), [r#"keep {"2+0"}"#], "once");
    // The job's own start before a requeue holds nothing of it.
    let again = Share { start: JobStart { restart_count: 1, ..joiner.start }, ..joiner.clone() };
    mechanisms.prepare(&mut driver, &devices, [joiner].iter(), &again).unwrap();
    assert_eq!(told(&mut driver), [r#"keep {"2+1"}"#, "add 2+1 0.4"]);
}

#[test]
fn where_there_are_no_partitions_caps_stay_caps_and_it_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let mut driver = Driver::default();
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    let mut reason = |driver: &mut Driver, share: &Share| {
        let prepared = mechanisms.prepare(driver, &devices, [].iter(), share).unwrap();
        assert_eq!(prepared.partition, None);
        prepared.without_partition
    };
    let first = reason(&mut driver, &capped(1, 0.6));
    assert_eq!(first.as_deref(), Some("device 3 cannot do this: it does not know -S"));
    let second = reason(&mut driver, &capped(2, 0.4));
    assert_eq!(second.as_deref(), Some("its MPS daemon was started without static SM partitions"));
    driver.running = None;
    assert_eq!(reason(&mut driver, &share(3, Mechanism::Mps)), None, "nobody wants any");
}

#[test]
fn a_host_without_a_cap_keeps_its_joiner_s_cap_a_cap() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let (host, joiner) = (share(1, Mechanism::Mps), capped(2, 0.3));
    let mut driver = Driver { has_partitions: true, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    let prepared = mechanisms.prepare(&mut driver, &devices, [].iter(), &host).unwrap();
    assert_eq!(prepared, Prepared::default(), "nothing reserved, nothing to tell");
    // It dies: started anew it is what it was.
    for state in [MpsState::Up, MpsState::Died] {
        driver.state = state;
        let prepared = mechanisms.prepare(&mut driver, &devices, [host.clone()].iter(), &joiner).unwrap();
        assert_eq!((prepared.partition, driver.running.as_ref().unwrap().partitions), (None, false));
        assert!(prepared.without_partition.is_some());
    }
    assert_eq!(driver.partitions, [""; 0]);
}

#[test]
fn a_joiner_without_a_cap_takes_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let (host, joiner) = (capped(1, 0.3), share(2, Mechanism::Mps));
    let mut driver = Driver { has_partitions: true, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    mechanisms.prepare(&mut driver, &devices, [].iter(), &host).unwrap();
    let prepared = mechanisms.prepare(&mut driver, &devices, [host].iter(), &joiner).unwrap();
    assert_eq!(prepared.partition.as_deref(), Some("GPU-3/2+0"));
    assert_eq!(
        driver.partitions.last().map(String::as_str),
        Some("add 2+0 1"),
        "the device gives what is free"
    );
}

#[test]
fn a_daemon_that_serves_nobody_is_started_anew_without_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let mut driver = Driver { has_partitions: true, client_count: 1, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    mechanisms.prepare(&mut driver, &devices, [].iter(), &capped(1, 0.3)).unwrap();
    let newcomer = share(2, Mechanism::Mps);
    let prepared = mechanisms.prepare(&mut driver, &devices, [].iter(), &newcomer).unwrap();
    assert!(prepared.partition.is_some(), "a client of before keeps the daemon as it is");
    driver.client_count = 0;
    let again = mechanisms.prepare(&mut driver, &devices, [newcomer.clone()].iter(), &newcomer).unwrap();
    assert!(again.partition.is_some(), "its own partition stays");
    let next = mechanisms.prepare(&mut driver, &devices, [].iter(), &share(3, Mechanism::Mps)).unwrap();
    assert_eq!((next, driver.running.unwrap().partitions), (Prepared::default(), false));
}

#[test]
fn a_daemon_that_died_gives_those_who_are_there_their_partitions_again() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let others = [share(1, Mechanism::Mps), capped(2, 0.3)];
    for state in [Some(MpsState::Died), None] {
        let settings = mps::settings(directory.path(), &Served::devices(&devices[0], &[]), false, &[]);
        let running = state.map(|_| MpsSettings { partitions: true, ..settings });
        let state = state.unwrap_or(MpsState::Up);
        let mut driver = Driver { has_partitions: true, running, state, ..Driver::default() };
        let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
        let newcomer = capped(3, 0.2);
        let prepared = mechanisms.prepare(&mut driver, &devices, others.iter(), &newcomer).unwrap();
        assert_eq!(driver.partitions[1..], ["add 2+0 0.3", "add 1+0 1", "add 3+0 0.2"], "caps first");
        let names: Vec<String> =
            prepared.others.iter().map(|(start, name)| format!("{start} {name}")).collect();
        assert_eq!(names, ["2+0 GPU-3/2+0", "1+0 GPU-3/1+0"]);
    }
}

#[test]
fn where_mps_serves_one_user_those_of_one_user_share_and_it_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    for static_partitions in [false, true] {
        let policy = MpsPolicy { multi_user: true, static_partitions };
        let mut driver = Driver { has_multi_user: false, ..Driver::default() };
        let mut mechanisms = Mechanisms::new(directory.path(), policy, &devices, &[]);
        let (host, joiner) = (capped(1, 0.6), capped(2, 0.4));
        let others = [host.clone()];
        let first = mechanisms.prepare(&mut driver, &devices, [].iter(), &host).unwrap();
        let expected = "device 3 cannot do this: it does not know -multiuser-server";
        assert_eq!(first.without_multi_user.as_deref(), Some(expected));
        assert!(driver.running.as_ref().is_some_and(|settings| !settings.multi_user));
        let second = mechanisms.prepare(&mut driver, &devices, others.iter(), &joiner).unwrap();
        assert_eq!(second.without_multi_user, None, "told already");
        // The next agent finds the daemon as it was started.
        for mut mechanisms in [mechanisms, Mechanisms::new(directory.path(), policy, &devices, &others)] {
            mechanisms.prepare(&mut driver, &devices, others.iter(), &joiner).unwrap();
            let stranger = Share { uid: UserId(1001), ..joiner.clone() };
            let refused = mechanisms.prepare(&mut driver, &devices, others.iter(), &stranger).unwrap_err();
            assert!(matches!(refused, MechanismError::OneUserOnly(_)), "{refused}");
        }
    }
}

#[test]
fn where_mps_serves_several_users_they_share() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let policy = MpsPolicy { multi_user: true, static_partitions: false };
    let mut driver = Driver::default();
    let mut mechanisms = Mechanisms::new(directory.path(), policy, &devices, &[]);
    let host = share(1, Mechanism::Mps);
    let joiner = Share { uid: UserId(1001), ..share(2, Mechanism::Mps) };
    mechanisms.prepare(&mut driver, &devices, [].iter(), &host).unwrap();
    let prepared = mechanisms.prepare(&mut driver, &devices, [host].iter(), &joiner).unwrap();
    assert_eq!(prepared, Prepared::default());
}

#[test]
fn a_daemon_that_was_started_for_a_share_that_failed_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let devices = [device(Mechanism::Mps)];
    let mut driver = Driver { has_partitions: true, has_no_partition_left: true, ..Driver::default() };
    let mut mechanisms = Mechanisms::new(directory.path(), SITE_WANTS_PARTITIONS, &devices, &[]);
    mechanisms.settle(&mut driver, &devices, &[]);
    driver.told.clear();
    assert!(mechanisms.prepare(&mut driver, &devices, [].iter(), &capped(1, 0.6)).is_err());
    assert!(driver.running.is_some());
    mechanisms.settle(&mut driver, &devices, &[]);
    assert_eq!((driver.running, driver.told.last().map(String::as_str)), (None, Some("stop 3")));
}
