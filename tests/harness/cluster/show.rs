//! What `scontrol show` and `squeue` say, as maps. For tests only: it trusts text that users wrote.

use std::collections::BTreeMap;

/// `Key=Value` pairs of one record of `scontrol show ... -o`; a value may hold blanks and `=`.
pub type Fields = BTreeMap<String, String>;

/// Reads one line of `scontrol show job -d -o`. The first of two values of a name stands.
pub fn parse_fields(line: &str) -> Fields {
    let mut fields = Fields::new();
    let mut last: Option<(String, String)> = None;
    for word in line.split(' ') {
        match word.split_once('=').filter(|(key, _)| is_key(key)) {
            Some((key, value)) => {
                if let Some((key, value)) = last.replace((key.to_owned(), value.to_owned())) {
                    fields.entry(key).or_insert(value);
                }
            }
            None => {
                if let Some((_, value)) = last.as_mut().filter(|_| !word.is_empty()) {
                    value.push(' ');
                    value.push_str(word);
                }
            }
        }
    }
    if let Some((key, value)) = last {
        fields.entry(key).or_insert(value);
    }
    for value in fields.values_mut() {
        value.truncate(value.trim_end().len());
    }
    fields
}

fn is_key(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_/:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_blanks_and_equal_signs() {
        let line =
            "JobId=7 JobName=a b UserId=alice(60001) TRES=cpu=1,mem=1000M Comment=x y=z Dependency=(null) \n";
        let fields = parse_fields(line.trim_end_matches('\n'));
        assert_eq!(fields["JobName"], "a b");
        assert_eq!(fields["TRES"], "cpu=1,mem=1000M");
        assert_eq!(fields["Comment"], "x y=z");
        assert_eq!(fields["Dependency"], "(null)");
        assert_eq!(fields.len(), 6);
    }
}
