//! What Slurm writes of trackable resources: `billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1`.

/// Of an allocation or a request, what a replay needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Amounts<'t> {
    pub(super) cpus: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) nodes: Option<u64>,
    /// `gres/gpu`, else the sum over its types.
    pub(super) gpus: Option<u64>,
    /// The one type of GPU that is named; of several none.
    pub(super) gpu_type: Option<&'t str>,
    pub(super) gpu_memory_bytes: Option<u64>,
    pub(super) gpu_use_percent: Option<f64>,
}

/// Of a `TRESUsageIn*` field the GPU's part: what it tells of CPUs is a time, and no matter here. `None` where that part is
/// no amount.
pub(super) fn used(text: &str) -> Option<Amounts<'_>> {
    let mut found = Amounts::default();
    for (name, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        match name {
            "gres/gpumem" => found.gpu_memory_bytes = Some(bytes(value)?),
            "gres/gpuutil" => found.gpu_use_percent = Some(number(value)?),
            _ => {}
        }
    }
    Some(found)
}

/// Reads one field; `None` where a part of it is no amount.
pub(super) fn amounts(text: &str) -> Option<Amounts<'_>> {
    let mut found = Amounts::default();
    let (mut of_types, mut types) = (0_u64, 0_u32);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=')?;
        match name {
            "cpu" => found.cpus = Some(count(value)?),
            "node" => found.nodes = Some(count(value)?),
            "mem" => found.memory_bytes = Some(bytes(value)?),
            "gres/gpu" => found.gpus = Some(count(value)?),
            _ => {
                if let Some(gpu_type) = name.strip_prefix("gres/gpu:") {
                    of_types = of_types.checked_add(count(value)?)?;
                    types += 1;
                    found.gpu_type = Some(gpu_type);
                }
            }
        }
    }
    if types != 1 {
        found.gpu_type = None;
    }
    if types > 0 && found.gpus.is_none() {
        found.gpus = Some(of_types);
    }
    Some(found)
}

fn count(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

/// A number that is finite and not negative.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// `64G`, `1.50T`, `1234` (bytes). Slurm counts in powers of 1024.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held below 2^53 before")]
fn bytes(text: &str) -> Option<u64> {
    let (digits, exponent) = match text.bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1),
        b'M' => (&text[..text.len() - 1], 2),
        b'G' => (&text[..text.len() - 1], 3),
        b'T' => (&text[..text.len() - 1], 4),
        b'P' => (&text[..text.len() - 1], 5),
        _ => (text, 0),
    };
    let bytes = number(digits)? * 1024_f64.powi(exponent);
    (bytes < 9e15).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_read_by_name() {
        let text = "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1,gres/lscratch=5";
        let found = amounts(text).unwrap();
        assert_eq!((found.cpus, found.gpus, found.nodes), (Some(8), Some(2), Some(1)));
        assert_eq!((found.memory_bytes, found.gpu_type), (Some(64 << 30), Some("a100")));
        let typed = amounts("gres/gpu:a100=1,gres/gpu:v100=3").unwrap();
        assert_eq!((typed.gpus, typed.gpu_type), (Some(4), None));
        assert_eq!(amounts(""), Some(Amounts::default()));
    }

    #[test]
    fn use_is_read_in_bytes_and_percent() {
        let found = used("cpu=00:01:00,energy=0,gres/gpumem=1500M,gres/gpuutil=87,mem=3.5G").unwrap();
        assert_eq!((found.gpu_memory_bytes, found.gpu_use_percent), (Some(1500 << 20), Some(87.0)));
        assert_eq!(used("gres/gpumem=much"), None);
        assert_eq!(amounts("mem=1.50T").unwrap().memory_bytes, Some(3 << 39));
    }

    #[test]
    fn what_is_no_amount_is_not_believed() {
        for text in
            ["gres/gpu", "gres/gpu=", "gres/gpu=-1", "mem=1e99T", "mem=nanG", "gres/gpu:a=x", "cpu=1é"]
        {
            assert_eq!(amounts(text), None, "{text}");
        }
    }
}
