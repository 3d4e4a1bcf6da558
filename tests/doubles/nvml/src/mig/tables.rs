//! What the driver says of each size of instance, and where one may lie.
//!
//! Sources: NVIDIA Multi-Instance GPU user guide, "Supported MIG Profiles" and "MIG Placement"; memory, SMs and places as
//! `nvidia-smi mig -lgip` and `-lgipp` print them; nvml.h, `NVML_GPU_INSTANCE_PROFILE_..` for the numbers of the questions.

use std::ffi::c_uint;

/// A size of instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// NVML's number of the question for it.
    pub(crate) number: c_uint,
    /// As NVIDIA calls it.
    pub(crate) name: &'static str,
    pub(crate) id: c_uint,
    pub(crate) compute_slices: c_uint,
    pub(crate) sms: c_uint,
    pub(crate) mebibytes: u64,
    pub(crate) instances_max: c_uint,
    /// Whether it takes the media engines, which are there once.
    pub(crate) has_media: bool,
    /// The memory slices of one, and those at which one may begin.
    pub(crate) size: c_uint,
    pub(crate) starts: &'static [c_uint],
    /// The GPU instance at the first of them; the others follow.
    pub(crate) first_instance: c_uint,
}

/// What a device can be cut into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) compute_slices: c_uint,
    pub(crate) profiles: &'static [Profile],
}

#[rustfmt::skip]
const A100_40: Table = Table { compute_slices: 7, profiles: &[
    Profile { number: 0, name: "1g.5gb", id: 19, compute_slices: 1, sms: 14, mebibytes: 4864, instances_max: 7, has_media: false, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 7, name: "1g.5gb+me", id: 20, compute_slices: 1, sms: 14, mebibytes: 4864, instances_max: 1, has_media: true, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 9, name: "1g.10gb", id: 15, compute_slices: 1, sms: 14, mebibytes: 9856, instances_max: 4, has_media: false, size: 2, starts: &[0, 2, 4, 6], first_instance: 3 },
    Profile { number: 1, name: "2g.10gb", id: 14, compute_slices: 2, sms: 28, mebibytes: 9856, instances_max: 3, has_media: false, size: 2, starts: &[0, 2, 4], first_instance: 3 },
    Profile { number: 2, name: "3g.20gb", id: 9, compute_slices: 3, sms: 42, mebibytes: 19968, instances_max: 2, has_media: false, size: 4, starts: &[0, 4], first_instance: 1 },
    Profile { number: 3, name: "4g.20gb", id: 5, compute_slices: 4, sms: 56, mebibytes: 19968, instances_max: 1, has_media: false, size: 4, starts: &[0], first_instance: 1 },
    Profile { number: 4, name: "7g.40gb", id: 0, compute_slices: 7, sms: 98, mebibytes: 40192, instances_max: 1, has_media: false, size: 8, starts: &[0], first_instance: 0 },
] };

#[rustfmt::skip]
const H100_80: Table = Table { compute_slices: 7, profiles: &[
    Profile { number: 0, name: "1g.10gb", id: 19, compute_slices: 1, sms: 16, mebibytes: 9984, instances_max: 7, has_media: false, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 7, name: "1g.10gb+me", id: 20, compute_slices: 1, sms: 16, mebibytes: 9984, instances_max: 1, has_media: true, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 9, name: "1g.20gb", id: 15, compute_slices: 1, sms: 26, mebibytes: 20096, instances_max: 4, has_media: false, size: 2, starts: &[0, 2, 4, 6], first_instance: 3 },
    Profile { number: 1, name: "2g.20gb", id: 14, compute_slices: 2, sms: 32, mebibytes: 20096, instances_max: 3, has_media: false, size: 2, starts: &[0, 2, 4], first_instance: 3 },
    Profile { number: 2, name: "3g.40gb", id: 9, compute_slices: 3, sms: 60, mebibytes: 40448, instances_max: 2, has_media: false, size: 4, starts: &[0, 4], first_instance: 1 },
    Profile { number: 3, name: "4g.40gb", id: 5, compute_slices: 4, sms: 64, mebibytes: 40448, instances_max: 1, has_media: false, size: 4, starts: &[0], first_instance: 1 },
    Profile { number: 4, name: "7g.80gb", id: 0, compute_slices: 7, sms: 132, mebibytes: 81152, instances_max: 1, has_media: false, size: 8, starts: &[0], first_instance: 0 },
] };

/// The whole's memory nobody has printed; this one is made up: seven times the smallest, which is less than any print of it.
#[rustfmt::skip]
const H200: Table = Table { compute_slices: 7, profiles: &[
    Profile { number: 0, name: "1g.18gb", id: 19, compute_slices: 1, sms: 16, mebibytes: 16384, instances_max: 7, has_media: false, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 7, name: "1g.18gb+me", id: 20, compute_slices: 1, sms: 16, mebibytes: 16384, instances_max: 1, has_media: true, size: 1, starts: &[0, 1, 2, 3, 4, 5, 6], first_instance: 7 },
    Profile { number: 9, name: "1g.35gb", id: 15, compute_slices: 1, sms: 26, mebibytes: 33024, instances_max: 4, has_media: false, size: 2, starts: &[0, 2, 4, 6], first_instance: 3 },
    Profile { number: 1, name: "2g.35gb", id: 14, compute_slices: 2, sms: 32, mebibytes: 33024, instances_max: 3, has_media: false, size: 2, starts: &[0, 2, 4], first_instance: 3 },
    Profile { number: 2, name: "3g.71gb", id: 9, compute_slices: 3, sms: 60, mebibytes: 71168, instances_max: 2, has_media: false, size: 4, starts: &[0, 4], first_instance: 1 },
    Profile { number: 3, name: "4g.71gb", id: 5, compute_slices: 4, sms: 64, mebibytes: 71168, instances_max: 1, has_media: false, size: 4, starts: &[0], first_instance: 1 },
    Profile { number: 4, name: "7g.141gb", id: 0, compute_slices: 7, sms: 132, mebibytes: 114_688, instances_max: 1, has_media: false, size: 8, starts: &[0], first_instance: 0 },
] };

#[rustfmt::skip]
const A30: Table = Table { compute_slices: 4, profiles: &[
    Profile { number: 0, name: "1g.6gb", id: 14, compute_slices: 1, sms: 14, mebibytes: 5836, instances_max: 4, has_media: false, size: 1, starts: &[0, 1, 2, 3], first_instance: 3 },
    Profile { number: 7, name: "1g.6gb+me", id: 21, compute_slices: 1, sms: 14, mebibytes: 5836, instances_max: 1, has_media: true, size: 1, starts: &[0, 1, 2, 3], first_instance: 3 },
    Profile { number: 1, name: "2g.12gb", id: 5, compute_slices: 2, sms: 28, mebibytes: 11672, instances_max: 2, has_media: false, size: 2, starts: &[0, 2], first_instance: 1 },
    Profile { number: 8, name: "2g.12gb+me", id: 6, compute_slices: 2, sms: 28, mebibytes: 11672, instances_max: 1, has_media: true, size: 2, starts: &[0, 2], first_instance: 1 },
    Profile { number: 3, name: "4g.24gb", id: 0, compute_slices: 4, sms: 56, mebibytes: 23344, instances_max: 1, has_media: false, size: 4, starts: &[0], first_instance: 0 },
] };

/// Of a model that cannot be cut, or of which nobody has printed it, nothing.
const NONE: Table = Table { compute_slices: 0, profiles: &[] };

/// What a model can be cut into.
pub(crate) fn of(model: &str) -> Table {
    match model {
        "a100-40" => A100_40,
        "h100" => H100_80,
        "h200" => H200,
        "a30" => A30,
        _ => NONE,
    }
}

impl Table {
    pub(crate) fn by_id(&self, id: c_uint) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

impl Profile {
    /// The driver's number of an instance that begins there.
    pub(crate) fn instance_at(&self, start: c_uint) -> Option<c_uint> {
        let place = (0..).zip(self.starts).find(|(_, allowed)| **allowed == start)?.0;
        Some(self.first_instance + place)
    }
}

/// The slices of the compute instances that NVML asks for by their place here (nvml.h, `NVML_COMPUTE_INSTANCE_PROFILE_..`).
pub(crate) const COMPUTE_SLICES: [c_uint; 8] = [1, 2, 3, 4, 7, 8, 6, 1];
/// The number of the last, which is an instance of one slice with engines of its own, and which none of these devices has.
pub(crate) const COMPUTE_REV1: c_uint = 7;
/// How many sizes of GPU instance this driver branch knows.
pub(crate) const PROFILE_COUNT: c_uint = 0x11;
