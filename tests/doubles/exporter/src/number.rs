//! Numbers as the exporters' languages print them.

/// C's `%f`, as dcgm-exporter prints doubles.
pub(crate) fn c(value: f64) -> String {
    format!("{value:.6}")
}

/// An integer of the driver: what is below one is cut off.
pub(crate) fn whole(value: f64) -> String {
    format!("{:.0}", value.floor())
}

/// Go's `strconv.FormatFloat(value, 'g', -1, 64)`, as Prometheus's client prints: an exponent from 10^21 on, of two digits
/// at least.
pub(crate) fn go(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Python's client (`prometheus_client.utils.floatToGoString`): an exponent as soon as there are seven digits before the
/// point, with a 0 before it whatever its length.
pub(crate) fn python(value: f64) -> String {
    let plain = if value.fract() == 0.0 { format!("{value:.1}") } else { format!("{value}") };
    match plain.find('.') {
        Some(point) if value > 0.0 && point > 6 => {
            let digits = plain.replace('.', "");
            let mantissa = format!("{}.{}", &digits[..1], &digits[1..]);
            format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), point - 1)
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_prints_in_its_own_way() {
        assert_eq!((c(0.713_204), c(243.117)), ("0.713204".into(), "243.117000".into()));
        assert_eq!(whole(41.99), "41");
        assert_eq!((go(0.95), go(0.0), go(4e5)), ("0.95".into(), "0".into(), "400000".into()));
        assert_eq!(go(1e-7), "1e-07");
        assert_eq!(
            (python(0.75), python(0.0), python(1600.0)),
            ("0.75".into(), "0.0".into(), "1600.0".into())
        );
        assert_eq!(
            (python(9_876_543.21), python(21_474_836_480.0)),
            ("9.87654321e+06".into(), "2.147483648e+010".into())
        );
    }
}
