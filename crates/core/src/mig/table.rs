//! The sizes of the models that are known, by our word for the model (`pillion-device` makes it of NVML's name).
//!
//! What NVIDIA's MIG user guide and the drivers print (`nvidia-smi mig -lgip`, `-lgipp`), and, of A30 and A100 80 GB, what
//! go-nvml's mocks have (`pkg/nvml/mock/gpus/{a30,a100}.go`, Apache-2.0). Its mocks of Hopper are not used: they place a 3g
//! on three memory slices, where the driver takes four. A model that is not here, or of which not all sizes are known (B200,
//! RTX PRO), is planned with once its driver tells them.

use super::{Extras, Geometry, MigProfile, Size};
use std::sync::LazyLock;

/// One size: compute slices, the gigabytes of its name, memory slices, most at once, MiB of memory, SMs.
type Row = (u8, u16, u8, u8, Option<u64>, u32);

/// Where a size may start, by its compute and memory slices, on a device of seven and eight.
const SEVENTHS: [((u8, u8), &[u8]); 6] = [
    ((1, 1), &[0, 1, 2, 3, 4, 5, 6]),
    ((1, 2), &[0, 2, 4, 6]),
    ((2, 2), &[0, 2, 4]),
    ((3, 4), &[0, 4]),
    ((4, 4), &[0]),
    ((7, 8), &[0]),
];

/// The same on an A30, of four and four.
const QUARTERS: [((u8, u8), &[u8]); 3] = [((1, 1), &[0, 1, 2, 3]), ((2, 2), &[0, 2]), ((4, 4), &[0])];

const A30: [Row; 3] =
    [(4, 24, 4, 1, Some(23_344), 56), (2, 12, 2, 2, Some(11_672), 28), (1, 6, 1, 4, Some(5_836), 14)];
const A100_40: [Row; 6] = [
    (7, 40, 8, 1, Some(40_192), 98),
    (4, 20, 4, 1, Some(19_968), 56),
    (3, 20, 4, 2, Some(19_968), 42),
    (2, 10, 2, 3, Some(9_856), 28),
    (1, 10, 2, 4, Some(9_856), 14),
    (1, 5, 1, 7, Some(4_864), 14),
];
const A100_80: [Row; 6] = [
    (7, 80, 8, 1, Some(80_384), 98),
    (4, 40, 4, 1, Some(40_192), 56),
    (3, 40, 4, 2, Some(40_192), 42),
    (2, 20, 2, 3, Some(19_968), 28),
    (1, 20, 2, 4, Some(19_968), 14),
    (1, 10, 1, 7, Some(9_856), 14),
];
// A 3g of a Hopper has 60 SMs and not three times 16, a 1g with the double memory 26.
const H100: [Row; 6] = [
    (7, 80, 8, 1, Some(81_152), 132),
    (4, 40, 4, 1, Some(40_448), 64),
    (3, 40, 4, 2, Some(40_448), 60),
    (2, 20, 2, 3, Some(20_096), 32),
    (1, 20, 2, 4, Some(20_096), 26),
    (1, 10, 1, 7, Some(9_984), 16),
];
const H100_NVL: [Row; 6] = [
    (7, 94, 8, 1, Some(95_360), 132),
    (4, 47, 4, 1, Some(47_488), 64),
    (3, 47, 4, 2, Some(47_488), 60),
    (2, 24, 2, 3, Some(22_144), 32),
    (1, 24, 2, 4, Some(22_144), 26),
    (1, 12, 1, 7, Some(11_008), 16),
];
// Its places are those of the H100: nobody has printed them. What the whole has is not known either.
const H200: [Row; 6] = [
    (7, 141, 8, 1, None, 132),
    (4, 71, 4, 1, Some(71_168), 64),
    (3, 71, 4, 2, Some(71_168), 60),
    (2, 35, 2, 3, Some(33_024), 32),
    (1, 35, 2, 4, Some(33_024), 26),
    (1, 18, 1, 7, Some(16_384), 16),
];

/// Each has its smallest size once more with the media engines, which one instance at a time can have.
static MODELS: LazyLock<Vec<(&'static str, Geometry)>> = LazyLock::new(|| {
    vec![
        ("a30", geometry(&A30, &QUARTERS)),
        ("a100-40", geometry(&A100_40, &SEVENTHS)),
        ("a100-80", geometry(&A100_80, &SEVENTHS)),
        ("h100", geometry(&H100, &SEVENTHS)),
        ("h100-nvl", geometry(&H100_NVL, &SEVENTHS)),
        ("h200", geometry(&H200, &SEVENTHS)),
    ]
});

impl Geometry {
    /// What a model can be cut into; `None`: it cannot, or nobody has told.
    pub fn of_model(model: &str) -> Option<&'static Self> {
        MODELS.iter().find(|(known, _)| *known == model).map(|(_, geometry)| geometry)
    }
    /// The models that are known.
    pub fn models() -> impl Iterator<Item = &'static str> {
        MODELS.iter().map(|(model, _)| *model)
    }
}

/// Whether a device of this model has to be reset before MIG can be turned on or off: Ampere. It keeps what it was told over a
/// reboot, where later ones forget it.
pub fn needs_reset(model: &str) -> bool {
    model.starts_with("a30") || model.starts_with("a100")
}

fn geometry(rows: &[Row], places: &[((u8, u8), &[u8])]) -> Geometry {
    let plain = rows.iter().map(|row| size(row, places, Extras::None));
    let media = rows.last().map(|row| Size { instances_max: 1, ..size(row, places, Extras::Media) });
    Geometry::try_new(plain.chain(media).collect()).expect("a test reads every row")
}

fn size(row: &Row, places: &[((u8, u8), &[u8])], extras: Extras) -> Size {
    let (compute_slices, gigabytes, memory_slices, instances_max, mebibytes, sm_count) = *row;
    let starts = places.iter().find(|(slices, _)| *slices == (compute_slices, memory_slices));
    Size {
        profile: MigProfile::new(compute_slices, gigabytes, extras).expect("a test reads every row"),
        memory_slices,
        starts: starts.map(|(_, starts)| starts.to_vec()).expect("a test reads every row"),
        instances_max,
        memory_bytes: mebibytes.map(|mebibytes| mebibytes << 20),
        sm_count,
    }
}
