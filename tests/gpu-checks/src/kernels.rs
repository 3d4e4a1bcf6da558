//! The workloads: kernels as PTX, which every driver compiles for the GPU that is there, and how much of them is run at a
//! time. They stand for a model's matrix products, its memory traffic and its small kernels, in two sizes; neither `PyTorch`
//! nor a toolkit is needed. Pure.

use clap::ValueEnum;

/// What a workload is bound by, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Workload {
    /// Fused multiply-adds in registers, on the whole GPU.
    Compute,
    /// The same on a part of it.
    ComputeSmall,
    /// Reads of device memory, far more than any cache holds, by the whole GPU.
    Bandwidth,
    /// The same by a part of it.
    BandwidthSmall,
    /// Launches of a kernel that does nothing, and waits for it: the processor is what it is bound by.
    Launch,
}

/// Threads of one block.
pub const THREADS: u32 = 256;
/// Blocks of a large launch: many times what a GPU holds at once, so that the last ones do not blur a ratio of speeds.
const BLOCKS_LARGE: u32 = 8192;
/// Blocks of a small one: one a multiprocessor on about half of a GPU of 2022.
const BLOCKS_SMALL: u32 = 64;
const BYTES_LARGE: usize = 512 << 20;
/// Still more than the cache of a GPU of 2022 (50 MB).
const BYTES_SMALL: usize = 128 << 20;
/// Rounds of the compute kernel's loop: about half a millisecond on a GPU of 2022, large as small.
const ROUNDS_LARGE: u32 = 500;
const ROUNDS_SMALL: u32 = 20_000;
/// Operations of one round: sixteen fused multiply-adds, of two operations each.
const OPERATIONS_PER_ROUND: u32 = 32;
/// What each thread writes at its end.
const BYTES_WRITTEN_PER_THREAD: usize = 4;
const BYTES_PER_READ: usize = 16;

impl Workload {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Compute, Self::ComputeSmall, Self::Bandwidth, Self::BandwidthSmall, Self::Launch];

    /// Its name, in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ComputeSmall => "compute-small",
            Self::Bandwidth => "bandwidth",
            Self::BandwidthSmall => "bandwidth-small",
            Self::Launch => "launch",
        }
    }

    /// Its kernel's entry in [`ptx`]: what workloads of different sizes have in common.
    pub const fn entry(self) -> &'static str {
        match self {
            Self::Compute | Self::ComputeSmall => "compute",
            Self::Bandwidth | Self::BandwidthSmall => "bandwidth",
            Self::Launch => "launch",
        }
    }

    /// Blocks of one launch.
    pub const fn blocks(self) -> u32 {
        match self {
            Self::Compute | Self::Bandwidth => BLOCKS_LARGE,
            Self::ComputeSmall | Self::BandwidthSmall => BLOCKS_SMALL,
            Self::Launch => 1,
        }
    }

    /// The kernel's last parameter: rounds, or elements of 16 bytes.
    #[expect(clippy::cast_possible_truncation, reason = "32 Mi elements at most")]
    pub const fn count(self) -> u32 {
        match self {
            Self::Compute => ROUNDS_LARGE,
            Self::ComputeSmall => ROUNDS_SMALL,
            Self::Bandwidth | Self::BandwidthSmall => (self.data_bytes() / BYTES_PER_READ) as u32,
            Self::Launch => 0,
        }
    }

    /// Bytes that it reads.
    pub const fn data_bytes(self) -> usize {
        match self {
            Self::Bandwidth => BYTES_LARGE,
            Self::BandwidthSmall => BYTES_SMALL,
            // They read none; there is no allocation of nothing.
            Self::Compute | Self::ComputeSmall | Self::Launch => BYTES_PER_READ,
        }
    }

    /// Bytes of the values that its threads write.
    pub const fn out_bytes(self) -> usize {
        self.blocks() as usize * THREADS as usize * BYTES_WRITTEN_PER_THREAD
    }

    /// FP32 operations of one launch, by the kernel's text; `None` where there is next to no arithmetic in it.
    pub fn operations(self) -> Option<f64> {
        let threads = f64::from(self.blocks()) * f64::from(THREADS);
        (self.entry() == "compute")
            .then(|| threads * f64::from(self.count()) * f64::from(OPERATIONS_PER_ROUND))
    }

    /// Bytes that one launch moves from and to device memory; `None` where there is next to nothing to move, or a cache may
    /// have a good part of it.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
    pub fn bytes(self) -> Option<f64> {
        matches!(self, Self::Bandwidth).then(|| (self.data_bytes() + self.out_bytes()) as f64)
    }
}

/// The headings of PTX that a driver is offered: the language's version, and the least compute capability that it is for,
/// newest first. A driver may know the newest not yet, and the oldest not any more.
const HEADINGS: [(&str, (u32, u32)); 4] =
    [("8.6", (10, 0)), ("7.8", (9, 0)), ("7.0", (8, 0)), ("6.0", (7, 0))];

/// All kernels, for a GPU of this compute capability (major, minor), in the order in which the driver is to be tried.
pub fn ptx(compute_capability: (u32, u32)) -> impl Iterator<Item = String> {
    let fits = move |(_, least): &(&str, (u32, u32))| *least <= compute_capability;
    HEADINGS.into_iter().filter(fits).map(|(version, (major, minor))| {
        format!(".version {version}\n.target sm_{major}{minor}\n.address_size 64\n{PTX_BODY}")
    })
}

/// FP32 operations that a multiprocessor does in one clock, two for each fused multiply-add (CUDA C++ Programming Guide,
/// "Arithmetic Instructions"); `None` for what is newer than that table.
pub fn operations_per_clock((major, minor): (u32, u32)) -> Option<f64> {
    match (major, minor) {
        (7, _) | (8, 0) => Some(128.0),
        (8 | 10 | 12, _) | (9, 0) => Some(256.0),
        _ => None,
    }
}

/// What follows the heading. Each entry takes (data, out, count); those that compute or read write one value a thread, so
/// that nothing of it is optimised away.
const PTX_BODY: &str = "

.visible .entry compute(.param .u64 data, .param .u64 out, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .reg .f32 %f<8>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    cvt.rn.f32.u32 %f1, %r5;
    mov.f32 %f2, %f1;
    mov.f32 %f3, %f1;
    mov.f32 %f4, %f1;
    mov.f32 %f5, 0f3F7FFFFE;
    mov.f32 %f6, 0f33800000;
    mov.u32 %r6, 0;
ROUND:
    fma.rn.f32 %f1, %f1, %f5, %f6;
    fma.rn.f32 %f2, %f2, %f5, %f6;
    fma.rn.f32 %f3, %f3, %f5, %f6;
    fma.rn.f32 %f4, %f4, %f5, %f6;
    fma.rn.f32 %f1, %f1, %f5, %f6;
    fma.rn.f32 %f2, %f2, %f5, %f6;
    fma.rn.f32 %f3, %f3, %f5, %f6;
    fma.rn.f32 %f4, %f4, %f5, %f6;
    fma.rn.f32 %f1, %f1, %f5, %f6;
    fma.rn.f32 %f2, %f2, %f5, %f6;
    fma.rn.f32 %f3, %f3, %f5, %f6;
    fma.rn.f32 %f4, %f4, %f5, %f6;
    fma.rn.f32 %f1, %f1, %f5, %f6;
    fma.rn.f32 %f2, %f2, %f5, %f6;
    fma.rn.f32 %f3, %f3, %f5, %f6;
    fma.rn.f32 %f4, %f4, %f5, %f6;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra ROUND;
    add.f32 %f1, %f1, %f2;
    add.f32 %f3, %f3, %f4;
    add.f32 %f1, %f1, %f3;
    cvta.to.global.u64 %d1, %d1;
    mul.wide.u32 %d2, %r5, 4;
    add.u64 %d3, %d1, %d2;
    st.global.f32 [%d3], %f1;
    ret;
}

.visible .entry bandwidth(.param .u64 data, .param .u64 out, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %d<8>;
    .reg .f32 %f<6>;
    ld.param.u64 %d1, [data];
    ld.param.u64 %d2, [out];
    ld.param.u32 %r1, [count];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %nctaid.x;
    mul.lo.u32 %r7, %r6, %r3;
    mov.u32 %r8, %r5;
    mov.f32 %f1, 0f00000000;
READ:
    setp.ge.u32 %p1, %r8, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %d3, %r8, 16;
    add.u64 %d4, %d1, %d3;
    ld.global.v4.f32 {%f2, %f3, %f4, %f5}, [%d4];
    add.f32 %f2, %f2, %f3;
    add.f32 %f4, %f4, %f5;
    add.f32 %f2, %f2, %f4;
    add.f32 %f1, %f1, %f2;
    add.u32 %r8, %r8, %r7;
    bra READ;
DONE:
    mul.wide.u32 %d5, %r5, 4;
    add.u64 %d6, %d2, %d5;
    st.global.f32 [%d6], %f1;
    ret;
}

.visible .entry launch(.param .u64 data, .param .u64 out, .param .u32 count)
{
    ret;
}
";

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str, entry: &str) -> String {
        let start = text.find(&format!(".entry {entry}(")).expect("it is there");
        text[start..].split_once("\n}").expect("it ends").0.to_owned()
    }

    #[test]
    fn every_register_is_declared_and_every_entry_is_there() {
        let text = ptx((9, 0)).next().unwrap();
        for workload in [Workload::Compute, Workload::Bandwidth] {
            let body = body(&text, workload.entry());
            for class in ["p", "r", "d", "f"] {
                let register = format!("%{class}");
                let declared = body.split(&format!("{register}<")).nth(1).expect("declared");
                let count: u32 = declared.split_once('>').unwrap().0.parse().unwrap();
                let used = body.split(&register).skip(1).filter_map(|rest| {
                    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    digits.parse::<u32>().ok()
                });
                assert!(used.max().expect("used") < count, "{}: %{class}", workload.name());
            }
        }
        body(&text, Workload::Launch.entry());
        assert!(text.is_ascii() && !text.contains('\0'), "it goes to C as it is");
    }

    #[test]
    fn the_newest_text_that_fits_the_gpu_is_tried_first() {
        let targets = |capability| {
            let target = |text: String| text.lines().nth(1).unwrap().to_owned();
            ptx(capability).map(target).collect::<Vec<_>>()
        };
        assert_eq!(targets((9, 0)), [".target sm_90", ".target sm_80", ".target sm_70"]);
        assert_eq!(targets((12, 0))[0], ".target sm_100");
        assert_eq!(targets((8, 9)), [".target sm_80", ".target sm_70"]);
        assert_eq!(targets((7, 0)), [".target sm_70"]);
        assert_eq!(targets((6, 1)), [""; 0], "Pascal has no MPS of this kind");
    }

    #[test]
    fn arithmetic_and_bytes_are_those_of_the_text() {
        let text = ptx((9, 0)).next().unwrap();
        let round = body(&text, "compute");
        let round = round.split("ROUND:").nth(1).unwrap().split("bra ROUND").next().unwrap();
        let operations = 2 * u32::try_from(round.matches("fma.rn.f32").count()).unwrap();
        assert_eq!(operations, OPERATIONS_PER_ROUND);
        assert!(body(&text, "bandwidth").contains("ld.global.v4.f32"), "16 bytes a read");
        assert_eq!(Workload::Compute.operations(), Some(8192.0 * 256.0 * 500.0 * 32.0));
        assert_eq!(Workload::Bandwidth.bytes(), Some(f64::from((512 << 20) + 8192 * 256 * 4)));
        assert_eq!(Workload::BandwidthSmall.count(), 8 << 20);
        assert_eq!((Workload::Launch.operations(), Workload::Launch.bytes()), (None, None));
        assert_eq!(Workload::BandwidthSmall.bytes(), None, "caches of 50 MB and more are about");
        assert_eq!((operations_per_clock((8, 0)), operations_per_clock((9, 0))), (Some(128.0), Some(256.0)));
        assert_eq!(operations_per_clock((11, 0)), None);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_possible_value().unwrap().get_name(), workload.name());
        }
    }
}
