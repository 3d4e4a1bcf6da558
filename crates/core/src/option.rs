//! The grammar of `--colocate[=...]`, read by the SPANK plugin at submit. `deploy/slurm/pillion.lua` reads it again on
//! the controller, because the plugin runs where the user can change it; a test holds the two against each other.
//!
//! ```text
//! option  = "" | "(null)" | "yes" | "no" | "off" | setting { "," setting }
//! setting = "guest" | "session" | "max-slowdown=" 1.00..10.00 | "profile=" [A-Za-z0-9._-]{1,64} | "memory=" digits [K|M|G|T][iB|B]
//!         | "cap=" ("0.1" | "0.2" | .. | "0.9" | "1") | "isolation=hard" | "restart=" ("yes" | "early")
//! ```

use crate::isolation::Isolation;
use crate::restart::RestartConsent;
use crate::units::{CapStep, SlowdownRatio};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest option text that is looked at.
pub const OPTION_LENGTH_MAX: usize = 256;
/// The longest profile name.
pub const PROFILE_NAME_LENGTH_MAX: usize = 64;

/// The settings that have no value.
const GUEST: &str = "guest";
const SESSION: &str = "session";

/// What a user asked for with `--colocate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ColocateOption {
    /// `--colocate=no`: as if the option had not been given.
    No,
    /// Share where it pays.
    Yes(ColocateRequest),
}

/// The settings of `--colocate`; absent means the site's default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ColocateRequest {
    /// The greatest slowdown ratio that the job accepts.
    pub slowdown_ratio_max: Option<SlowdownRatio>,
    /// A name for the workload, instead of the digest of the script.
    pub profile_name: Option<String>,
    /// The most device memory that the job needs.
    pub memory_bytes: Option<u64>,
    /// Not to share: to run alone under this cap, so that its speed there becomes known.
    pub cap: Option<CapStep>,
    /// What is to stand between it and jobs of other users, where it is more than the site's default.
    pub isolation: Option<Isolation>,
    /// Whether it may be started again with more device memory: once.
    pub restart: Option<RestartConsent>,
    /// To run as a guest: where nobody else needs the device, and to be started again from the beginning where somebody does.
    pub as_guest: bool,
    /// A batch job in front of which somebody sits (a notebook that a portal submits): to be decided on as an interactive job is.
    pub as_session: bool,
}

impl fmt::Display for ColocateRequest {
    /// As a user writes it; `yes` where nothing is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            slowdown_ratio_max,
            profile_name,
            memory_bytes,
            cap,
            isolation,
            restart,
            as_guest,
            as_session,
        } = self;
        let settings = [
            as_guest.then(|| GUEST.to_owned()),
            as_session.then(|| SESSION.to_owned()),
            slowdown_ratio_max.map(|ratio| format!("max-slowdown={}", ratio.value())),
            profile_name.as_ref().map(|name| format!("profile={name}")),
            memory_bytes.map(|bytes| format!("memory={}K", bytes >> 10)),
            cap.map(|cap| format!("cap={cap}")),
            isolation.map(|isolation| format!("isolation={isolation}")),
            restart.map(|consent| format!("restart={consent}")),
        ];
        let settings: Vec<String> = settings.into_iter().flatten().collect();
        f.write_str(if settings.is_empty() { "yes" } else { "" })?;
        f.write_str(&settings.join(","))
    }
}

/// A value of `--colocate` that is refused, with what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOption {
    /// Longer than [`OPTION_LENGTH_MAX`] bytes.
    #[error("--colocate: the value is {0} bytes long; at most {OPTION_LENGTH_MAX} are allowed")]
    TooLong(usize),
    /// A control character, a blank, a quote or a byte outside ASCII.
    #[error("--colocate: the value may hold only letters, digits and . _ - = , (found byte {0:#04x})")]
    BadByte(u8),
    /// Not one of the known settings.
    #[error(
        "--colocate: unknown setting '{0}'; allowed are yes, no, guest, session, max-slowdown=R, profile=NAME, memory=SIZE, cap=PART, \
         isolation=hard and restart=yes or early"
    )]
    UnknownSetting(String),
    /// The same setting twice.
    #[error("--colocate: {0} is given twice; give it once")]
    Twice(&'static str),
    /// Not a number from 1 to 10.
    #[error("--colocate: max-slowdown={0} is not allowed; write a number from 1 to 10, such as 1.15")]
    BadSlowdown(String),
    /// Not a workload name.
    #[error(
        "--colocate: profile={0} is not allowed; write 1 to 64 letters, digits, dots, underscores or dashes"
    )]
    BadProfile(String),
    /// Not an amount of memory.
    #[error(
        "--colocate: memory={0} is not allowed; write a whole number with K, M, G or T, such as 8G (at most 16T)"
    )]
    BadMemory(String),
    /// Not a cap that speeds are kept for.
    #[error(
        "--colocate: cap={0} is not allowed; write 0.1, 0.2, .. 0.9 or 1: the part of the GPU that it may use alone"
    )]
    BadCap(String),
    /// Not a wall: a user may ask for more than the site gives, never for less.
    #[error("--colocate: isolation={0} is not allowed; write hard, or leave it out for what the site gives")]
    BadIsolation(String),
    /// Not a consent.
    #[error(
        "--colocate: restart={0} is not allowed; write yes to have the job started again once, with more memory, after it ran \
         out of GPU memory, or early to have that done already when it will almost certainly run out"
    )]
    BadRestart(String),
}

/// Reads the value of `--colocate`. `None`, the empty text and Slurm's `(null)` mean that no value was given.
///
/// # Errors
/// [`InvalidOption`], whose text is what the user sees.
pub fn parse(value: Option<&str>) -> Result<ColocateOption, InvalidOption> {
    let text = match value {
        None | Some("" | "(null)" | "yes") => return Ok(ColocateOption::Yes(ColocateRequest::default())),
        Some("no" | "off") => return Ok(ColocateOption::No),
        Some(text) => text,
    };
    if text.len() > OPTION_LENGTH_MAX {
        return Err(InvalidOption::TooLong(text.len()));
    }
    if let Some(byte) = text.bytes().find(|b| !(b.is_ascii_alphanumeric() || b"._-=,".contains(b))) {
        return Err(InvalidOption::BadByte(byte));
    }
    let mut request = ColocateRequest::default();
    for setting in text.split(',') {
        apply(&mut request, setting)?;
    }
    Ok(ColocateOption::Yes(request))
}

fn apply(request: &mut ColocateRequest, setting: &str) -> Result<(), InvalidOption> {
    let unknown = || InvalidOption::UnknownSetting(setting.to_owned());
    match setting {
        GUEST => return set_flag(&mut request.as_guest, GUEST),
        SESSION => return set_flag(&mut request.as_session, SESSION),
        _ => {}
    }
    let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
    match name {
        "max-slowdown" => set(&mut request.slowdown_ratio_max, "max-slowdown=", parse_slowdown(value)?),
        "profile" => set(&mut request.profile_name, "profile=", parse_profile_name(value)?),
        "memory" => set(&mut request.memory_bytes, "memory=", parse_memory(value)?),
        "cap" => {
            let cap = value.parse().map_err(|_| InvalidOption::BadCap(value.to_owned()))?;
            set(&mut request.cap, "cap=", cap)
        }
        "isolation" => {
            let wanted = value.parse().ok().filter(|wanted| *wanted == Isolation::Hard);
            let wanted = wanted.ok_or_else(|| InvalidOption::BadIsolation(value.to_owned()))?;
            set(&mut request.isolation, "isolation=", wanted)
        }
        "restart" => {
            let consent = value.parse().ok().filter(|consent: &RestartConsent| consent.is_given());
            let consent = consent.ok_or_else(|| InvalidOption::BadRestart(value.to_owned()))?;
            set(&mut request.restart, "restart=", consent)
        }
        _ => Err(unknown()),
    }
}

fn set<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), InvalidOption> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(InvalidOption::Twice(name)),
    }
}

fn set_flag(flag: &mut bool, name: &'static str) -> Result<(), InvalidOption> {
    if std::mem::replace(flag, true) { Err(InvalidOption::Twice(name)) } else { Ok(()) }
}

fn parse_slowdown(text: &str) -> Result<SlowdownRatio, InvalidOption> {
    let plain = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let ends_in_digits =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit());
    let number = (plain && ends_in_digits).then(|| text.parse::<f64>().ok()).flatten();
    number
        .and_then(|value| SlowdownRatio::try_promise(value).ok())
        .ok_or_else(|| InvalidOption::BadSlowdown(text.to_owned()))
}

fn parse_profile_name(text: &str) -> Result<String, InvalidOption> {
    if is_profile_name(text) { Ok(text.to_owned()) } else { Err(InvalidOption::BadProfile(text.to_owned())) }
}

/// Whether `profile=` may be this.
pub fn is_profile_name(text: &str) -> bool {
    (1..=PROFILE_NAME_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The name that a value of `--colocate` gives its workload.
pub fn profile_name(value: Option<&str>) -> Option<String> {
    match parse(Some(value?)) {
        Ok(ColocateOption::Yes(request)) => request.profile_name,
        Ok(ColocateOption::No) | Err(_) => None,
    }
}

/// Reads `512M`, `8G`, `8GB`, `8GiB`: powers of 1024 throughout, as Slurm counts memory.
///
/// # Errors
/// [`InvalidOption::BadMemory`] without a unit, for zero, and above 16 TiB.
pub fn parse_memory(text: &str) -> Result<u64, InvalidOption> {
    let bad = || InvalidOption::BadMemory(text.to_owned());
    let digits_end = text.bytes().position(|b| !b.is_ascii_digit()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(digits_end);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(bad()),
    };
    if !matches!(&unit[1..], "" | "B" | "iB") || digits.len() > 12 {
        return Err(bad());
    }
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)).ok_or_else(bad)?;
    if (1..=16 << 40).contains(&bytes) { Ok(bytes) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_means_yes_with_the_site_defaults() {
        for value in [None, Some(""), Some("(null)"), Some("yes")] {
            assert_eq!(parse(value), Ok(ColocateOption::Yes(ColocateRequest::default())));
        }
        assert_eq!(parse(Some("no")), Ok(ColocateOption::No));
    }

    #[test]
    fn all_settings_together() {
        let parsed = parse(Some(
            "max-slowdown=1.15,profile=bert-base.v2,memory=8G,cap=0.3,isolation=hard,restart=yes,guest,session",
        ))
        .unwrap();
        let expected = ColocateRequest {
            slowdown_ratio_max: SlowdownRatio::try_promise(1.15).ok(),
            profile_name: Some("bert-base.v2".to_owned()),
            memory_bytes: Some(8 << 30),
            cap: CapStep::from_tenths(3),
            isolation: Some(Isolation::Hard),
            restart: Some(RestartConsent::Yes),
            as_guest: true,
            as_session: true,
        };
        assert_eq!(parsed, ColocateOption::Yes(expected));
    }

    #[test]
    fn what_is_refused_says_what_is_allowed() {
        let cases = [
            ("maybe", "unknown setting 'maybe'; allowed are yes, no, guest, session, max-slowdown=R"),
            ("max-slowdown=0.9", "write a number from 1 to 10"),
            ("max-slowdown=11", "write a number from 1 to 10"),
            ("max-slowdown=1e1", "write a number from 1 to 10"),
            ("max-slowdown=.5", "write a number from 1 to 10"),
            ("profile=", "write 1 to 64 letters"),
            ("memory=8", "write a whole number with K, M, G or T"),
            ("memory=0G", "write a whole number with K, M, G or T"),
            ("memory=17T", "at most 16T"),
            ("memory=8G,memory=9G", "given twice"),
            ("cap=0", "write 0.1, 0.2, .. 0.9 or 1"),
            ("cap=0.25", "write 0.1, 0.2, .. 0.9 or 1"),
            ("cap=1.1", "write 0.1, 0.2, .. 0.9 or 1"),
            ("cap=30", "write 0.1, 0.2, .. 0.9 or 1"),
            ("cap=0.3,cap=0.4", "cap= is given twice"),
            ("isolation=shared", "isolation=shared is not allowed; write hard"),
            ("isolation=", "write hard"),
            ("isolation=hard,isolation=hard", "isolation= is given twice"),
            ("restart=late", "restart=late is not allowed; write yes"),
            ("restart=no", "started again once, with more memory, after it ran out of GPU memory"),
            ("restart=yes,restart=early", "restart= is given twice"),
            ("guest,guest", "guest is given twice; give it once"),
            ("session,session", "session is given twice; give it once"),
            ("session=yes", "unknown setting 'session=yes'"),
            ("guest=yes", "unknown setting 'guest=yes'"),
            ("profile=a b", "found byte 0x20"),
            ("profile=a\nb", "found byte 0x0a"),
            ("yes,memory=8G", "unknown setting 'yes'"),
            (",", "unknown setting ''"),
        ];
        for (value, expected) in cases {
            let message = parse(Some(value)).unwrap_err().to_string();
            assert!(message.contains(expected), "{value:?} gave {message:?}");
        }
        assert!(matches!(parse(Some(&"x".repeat(60_000))), Err(InvalidOption::TooLong(60_000))));
    }

    #[test]
    fn memory_is_counted_in_powers_of_1024() {
        for text in ["8G", "8GB", "8GiB"] {
            assert_eq!(parse_memory(text), Ok(8 << 30));
        }
        assert_eq!(parse_memory("16T"), Ok(16 << 40));
        for text in ["8iB", "8B", "8", "G", "", "8GiBB", "8BG", "-8G", "8g", "1.5G"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(
            promise in proptest::option::of(100_u32..=1000),
            profile in proptest::option::of("[A-Za-z0-9._-]{1,64}"),
            memory_kib in proptest::option::of(1_u64..=16 << 30),
            tenths in 0_u8..=10,
            is_isolated in proptest::bool::ANY,
            restart in proptest::sample::select(vec![None, Some(RestartConsent::Yes), Some(RestartConsent::Early)]),
            as_guest in proptest::bool::ANY,
            as_session in proptest::bool::ANY,
        ) {
            let request = ColocateRequest {
                slowdown_ratio_max: promise.and_then(|promise| SlowdownRatio::try_promise(f64::from(promise) / 100.0).ok()),
                profile_name: profile,
                memory_bytes: memory_kib.map(|kib| kib << 10),
                cap: CapStep::from_tenths(tenths),
                isolation: is_isolated.then_some(Isolation::Hard),
                restart,
                as_guest,
                as_session,
            };
            proptest::prop_assert_eq!(parse(Some(&request.to_string())), Ok(ColocateOption::Yes(request)));
        }

        #[test]
        fn never_panics_and_never_prints_a_control_character(text in "\\PC{0,40}|[a-z=,.0-9-]{0,40}") {
            if let Err(error) = parse(Some(&text)) {
                proptest::prop_assert!(!error.to_string().chars().any(char::is_control));
            }
        }
    }
}
