//! Device time and energy as people are told them: in the unit that says something, `12.3 GPU-minutes` rather than
//! `0.2 GPU-hours`, and never as a zero with a minus. What programs read keeps one unit: [`plain`].

use crate::units::{JOULES_PER_KILOWATT_HOUR, SECONDS_PER_HOUR};
use std::fmt;

/// In what an amount is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A second of one GPU.
    GpuSecond,
    /// A minute of one GPU.
    GpuMinute,
    /// An hour of one GPU.
    GpuHour,
    /// 3,600 joules, for amounts below a kilowatt-hour.
    WattHour,
    /// 3.6 million joules, from a kilowatt-hour on.
    KilowattHour,
}

impl Unit {
    /// The one for so much device time; for several amounts side by side, for the greatest of them.
    pub fn of_device_time(seconds: f64) -> Self {
        match seconds.abs() {
            // Too little to be told: nothing, whatever the unit.
            size if size < Self::GpuSecond.least() => Self::GpuHour,
            size if size < 60.0 => Self::GpuSecond,
            size if size < SECONDS_PER_HOUR => Self::GpuMinute,
            _ => Self::GpuHour,
        }
    }
    /// The one for so much energy.
    pub fn of_energy(joules: f64) -> Self {
        let size = joules.abs();
        let is_small = size >= Self::WattHour.least() && size < JOULES_PER_KILOWATT_HOUR;
        if is_small { Self::WattHour } else { Self::KilowattHour }
    }
    /// Seconds or joules in these units.
    pub fn count(self, amount: f64) -> f64 {
        amount / self.size()
    }
    /// In full: `GPU-minutes`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuSecond => "GPU-seconds",
            Self::GpuMinute => "GPU-minutes",
            Self::GpuHour => "GPU-hours",
            Self::WattHour => "Wh",
            Self::KilowattHour => "kWh",
        }
    }
    /// Below a heading that says of what: `min`.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::GpuSecond => "s",
            Self::GpuMinute => "min",
            Self::GpuHour => "h",
            Self::WattHour | Self::KilowattHour => self.name(),
        }
    }
    /// In seconds or joules.
    const fn size(self) -> f64 {
        match self {
            Self::GpuSecond => 1.0,
            Self::GpuMinute => 60.0,
            Self::GpuHour => SECONDS_PER_HOUR,
            Self::WattHour => JOULES_PER_KILOWATT_HOUR / 1000.0,
            Self::KilowattHour => JOULES_PER_KILOWATT_HOUR,
        }
    }
    /// What is rounded to more than nothing.
    const fn least(self) -> f64 {
        match self {
            Self::GpuSecond => 0.05,
            Self::GpuMinute | Self::GpuHour | Self::WattHour | Self::KilowattHour => self.size() * 0.005,
        }
    }
    fn digits(self, count: f64) -> usize {
        match (self, count.abs()) {
            (Self::GpuSecond, size) => usize::from(size < 10.0),
            (_, size) if size < 10.0 => 2,
            (_, size) => usize::from(size < 100.0),
        }
    }
}

/// So much device time, or energy; less than nothing where it was lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    count: f64,
    unit: Unit,
}

impl Amount {
    /// Time of one GPU.
    pub fn device_time(seconds: f64) -> Self {
        Self::new(seconds, Unit::of_device_time(seconds))
    }
    /// An amount of energy in joules, in the unit that suits it.
    pub fn energy(joules: f64) -> Self {
        Self::new(joules, Unit::of_energy(joules))
    }
    fn new(amount: f64, unit: Unit) -> Self {
        let is_told = amount.abs() >= unit.least();
        Self { count: if is_told { unit.count(amount) } else { 0.0 }, unit }
    }
    /// Whether it is told as less than nothing.
    pub fn is_loss(self) -> bool {
        self.count < 0.0
    }
    /// The unit in which it is printed.
    pub const fn unit(self) -> Unit {
        self.unit
    }
    /// The number alone: `12.3`, `-4.00`, `0`.
    pub fn number(self) -> String {
        if self.count == 0.0 {
            return "0".to_owned();
        }
        format!("{:.*}", self.unit.digits(self.count), self.count)
    }
    /// The number with its sign, and a minus as wide as the plus: `+12.3`, `−4.00`, `0`.
    pub fn signed_number(self) -> String {
        let number = self.number();
        match number.strip_prefix('-') {
            Some(size) => format!("−{size}"),
            None if self.count == 0.0 => number,
            None => format!("+{number}"),
        }
    }
    /// Below a heading that says of what: `12.3 min`.
    pub fn brief(self) -> String {
        format!("{} {}", self.number(), self.unit.sign())
    }
    /// The same with its sign: `+12.3 min`.
    pub fn signed_brief(self) -> String {
        format!("{} {}", self.signed_number(), self.unit.sign())
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number(), self.unit.name())
    }
}

/// A number for programs, with two digits: `0.00` for what is rounded to it from either side.
pub fn plain(number: f64) -> String {
    let text = format!("{number:.2}");
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_told_in_the_unit_that_says_something() {
        let time = |seconds| Amount::device_time(seconds).to_string();
        assert_eq!(time(4.25), "4.2 GPU-seconds");
        assert_eq!(time(42.0), "42 GPU-seconds");
        assert_eq!(time(738.0), "12.3 GPU-minutes");
        assert_eq!(time(18_000.0), "5.00 GPU-hours");
        assert_eq!(time(-36e5), "-1000 GPU-hours");
        assert_eq!(Amount::device_time(90.0).brief(), "1.50 min");
        let energy = |joules| Amount::energy(joules).to_string();
        assert_eq!(energy(120.0), "0.03 Wh");
        assert_eq!(energy(72_000.0), "20.0 Wh");
        assert_eq!(energy(7.2e6), "2.00 kWh");
    }

    #[test]
    fn what_is_rounded_to_nothing_has_no_sign() {
        for seconds in [0.0, -0.0, 0.01, -0.01] {
            assert_eq!(Amount::device_time(seconds).to_string(), "0 GPU-hours", "{seconds}");
            assert_eq!(Amount::device_time(seconds).signed_brief(), "0 h", "{seconds}");
            assert!(!Amount::device_time(seconds).is_loss(), "{seconds}");
        }
        assert_eq!(Amount::energy(-3.0).to_string(), "0 kWh");
        assert_eq!(Amount::energy(-72_000.0).signed_brief(), "−20.0 Wh");
        assert_eq!(Amount::device_time(738.0).signed_number(), "+12.3");
    }

    #[test]
    fn a_plain_number_is_never_minus_nothing() {
        assert_eq!(plain(-0.004), "0.00");
        assert_eq!(plain(-0.006), "-0.01");
        assert_eq!(plain(12.0), "12.00");
    }
}
