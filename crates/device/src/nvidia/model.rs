//! NVML's product names in our words for models. Pure.
//!
//! Profiles are kept by model, so boards that differ in compute units or memory bandwidth have words of their own, and
//! those that differ in form only share one.

const GIB: u64 = 1 << 30;

/// Our word for a product name such as `NVIDIA A100-SXM4-80GB`: lower case, letters, digits and dashes.
/// `memory_bytes` tells the sizes of an A100 apart where its name does not.
pub(super) fn model(name: &str, memory_bytes: u64) -> String {
    let name = name.to_lowercase();
    let words: Vec<&str> = name
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !matches!(*word, "nvidia" | "tesla"))
        .collect();
    match words.first() {
        Some(&"v100") => "v100".to_owned(),
        // 40 GB boards have 1.6 TB/s of bandwidth, those of 80 GB 2.0 TB/s.
        Some(&"a100") => {
            let named = words.iter().find_map(|word| word.strip_suffix("gb")?.parse::<u64>().ok());
            format!("a100-{}", named.unwrap_or_else(|| (memory_bytes + GIB / 2) / GIB))
        }
        // The boards for PCIe slots have fewer SMs or other memory than those on SXM.
        Some(chip @ (&"h100" | &"h200" | &"h800" | &"b200" | &"b300")) => {
            let board = words.iter().find(|word| matches!(**word, "pcie" | "nvl"));
            board.map_or_else(|| (*chip).to_owned(), |board| format!("{chip}-{board}"))
        }
        Some(_) => words.join("-"),
        None => "nvidia".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_our_words() {
        for (name, word) in [
            ("Tesla V100-SXM2-32GB", "v100"),
            ("Tesla V100-PCIE-16GB", "v100"),
            ("NVIDIA A100-SXM4-40GB", "a100-40"),
            ("NVIDIA A100-PCIE-40GB", "a100-40"),
            ("NVIDIA A100-SXM4-80GB", "a100-80"),
            ("NVIDIA A100 80GB PCIe", "a100-80"),
            ("NVIDIA A100-SXM-64GB", "a100-64"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("NVIDIA H100 NVL", "h100-nvl"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA H200 NVL", "h200-nvl"),
            ("NVIDIA GH200 480GB", "gh200-480gb"),
            ("NVIDIA B200", "b200"),
            ("NVIDIA A30", "a30"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada-generation"),
            ("", "nvidia"),
        ] {
            assert_eq!(model(name, 0), word, "{name}");
        }
    }

    #[test]
    fn an_a100_without_its_size_is_known_by_its_memory() {
        assert_eq!(model("NVIDIA A100-PG509-200", 40 * GIB - 300_000_000), "a100-40");
        assert_eq!(model("A100", 79 * GIB + GIB * 6 / 10), "a100-80");
    }
}
