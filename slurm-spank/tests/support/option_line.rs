//! What Rust makes of a value of `--colocate`, in the words of slurm-spank/tests/lua/option.lua: the two readers are held against each
//! other by it, here and by tests/fuzz.

use pillion_core::option::{self, ColocateOption};

/// As `option.lua` prints it: `refused`, `no`, or `yes` and each setting in turn, `-` where it is not set.
pub(crate) fn option_line(value: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(value) else { return "refused".to_owned() };
    let request = match option::parse(Some(text)) {
        Err(_) => return "refused".to_owned(),
        Ok(ColocateOption::No) => return "no".to_owned(),
        Ok(ColocateOption::Yes(request)) => request,
    };
    let settings = [
        request.slowdown_ratio_max.map(|ratio| ratio.value().to_string()),
        request.profile_name,
        request.memory_bytes.map(|bytes| bytes.to_string()),
        request.cap.map(|cap| cap.to_string()),
        request.isolation.map(|isolation| isolation.to_string()),
        request.restart.map(|consent| consent.to_string()),
        request.as_guest.then(|| "guest".to_owned()),
        request.as_session.then(|| "session".to_owned()),
    ];
    let words: Vec<String> =
        settings.into_iter().map(|word| word.unwrap_or_else(|| "-".to_owned())).collect();
    format!("yes {}", words.join(" "))
}

/// A line of `option.lua` with the ratio as Rust prints it: C prints 1.15 with 17 digits as 1.1499999999999999.
pub(crate) fn normalised_option_line(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    if let Some(ratio) = words.get(1).and_then(|word| word.parse::<f64>().ok()) {
        words[1] = ratio.to_string();
    }
    words.join(" ")
}
