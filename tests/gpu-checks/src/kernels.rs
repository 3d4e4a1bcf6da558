//! The kernels, as PTX for compute capability 7.0 and later: every driver compiles them for the GPU that is there.

use clap::ValueEnum;

/// What a kernel is bound by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// Fused multiply-adds in registers.
    Compute,
    /// Reads of device memory, far more than any cache holds.
    Bandwidth,
}

/// Blocks of one launch: many times what a GPU holds at once, so that the last ones do not blur a ratio of speeds.
pub const BLOCKS: u32 = 8192;
/// Threads of one block.
pub const THREADS: u32 = 256;
/// What the bandwidth kernel reads in one launch.
pub const DATA_BYTES: usize = 512 << 20;
/// Rounds of the compute kernel's loop: about a millisecond on a GPU of 2022.
const ROUNDS: u32 = 500;

impl Kernel {
    /// Its entry in [`PTX`].
    pub const fn entry(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Bandwidth => "bandwidth",
        }
    }

    /// Its last parameter: rounds, or elements of 16 bytes.
    pub const fn count(self) -> u32 {
        match self {
            Self::Compute => ROUNDS,
            Self::Bandwidth => DATA_ELEMENTS,
        }
    }

    /// Bytes that it reads.
    pub const fn data_bytes(self) -> usize {
        match self {
            // It reads none; there is no allocation of nothing.
            Self::Compute => 16,
            Self::Bandwidth => DATA_BYTES,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "32 Mi elements")]
const DATA_ELEMENTS: u32 = (DATA_BYTES / 16) as u32;

/// Each entry takes (data, out, count) and writes one value a thread, so that nothing of it is optimised away.
pub const PTX: &str = "\
.version 6.0
.target sm_70
.address_size 64

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
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_is_declared_and_every_entry_is_there() {
        for kernel in [Kernel::Compute, Kernel::Bandwidth] {
            let start = PTX.find(&format!(".entry {}(", kernel.entry())).expect("it is there");
            let body = PTX[start..].split_once("\n}").expect("it ends").0;
            for class in ["p", "r", "d", "f"] {
                let register = format!("%{class}");
                let declared = body.split(&format!("{register}<")).nth(1).expect("declared");
                let count: u32 = declared.split_once('>').unwrap().0.parse().unwrap();
                let used = body.split(&register).skip(1).filter_map(|rest| {
                    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    digits.parse::<u32>().ok()
                });
                assert!(used.max().expect("used") < count, "{}: %{class}", kernel.entry());
            }
        }
        assert!(PTX.is_ascii() && !PTX.contains('\0'), "it goes to C as it is");
    }
}
