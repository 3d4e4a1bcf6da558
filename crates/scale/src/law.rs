//! The laws by which a time falls with the number of GPUs, and what is believed of them before anything was measured.

use serde::Serialize;

/// A law with one parameter besides the time of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// A part of the work is not divided among GPUs: `T(n) = T(1) (s + (1 - s) / n)`. Its parameter is `ln(s / (1 - s))`.
    ///
    /// Source: Amdahl, AFIPS 1967.
    Amdahl,
    /// Each doubling is worth the same: `T(n) = T(1) / n^b`. Its parameter is `b`.
    Power,
}

impl Law {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Amdahl, Self::Power];

    /// The logarithm of `T(n) / T(1)`. `gpus` from 1 on.
    pub(crate) fn shape(self, parameter: f64, gpus: f64) -> f64 {
        match self {
            Self::Amdahl => {
                let serial_fraction = 1.0 / (1.0 + (-parameter).exp());
                (serial_fraction + (1.0 - serial_fraction) / gpus).ln()
            }
            Self::Power => -parameter * gpus.ln(),
        }
    }

    /// Mean and deviation of the parameter, normal, before anything was measured: what was published of such trainings.
    pub(crate) const fn prior(self) -> (f64, f64) {
        match self {
            Self::Amdahl => (-4.5, 1.5),
            Self::Power => (0.85, 0.12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gpu_takes_its_own_time_and_more_take_less() {
        for law in Law::ALL {
            let (mean, _) = law.prior();
            assert!(law.shape(mean, 1.0).abs() < 1e-12);
            assert!(law.shape(mean, 8.0) < law.shape(mean, 2.0));
        }
        // A tenth that is not divided: 1 / (0.1 + 0.9 / 2).
        let tenth = (0.1_f64 / 0.9).ln();
        assert!((law_ratio(Law::Amdahl, tenth, 2.0) - 0.55).abs() < 1e-12);
        assert!((law_ratio(Law::Power, 1.0, 4.0) - 0.25).abs() < 1e-12);
    }

    fn law_ratio(law: Law, parameter: f64, gpus: f64) -> f64 {
        law.shape(parameter, gpus).exp()
    }
}
