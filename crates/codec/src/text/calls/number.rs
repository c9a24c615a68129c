//! Converts Python numbers to JSON numbers.

/// Replaces `number` by the JSON form of a Python number. Returns whether `word` is one. Valid JSON
/// numbers stay unchanged.
pub(crate) fn write_number(word: &str, number: &mut String) -> bool {
    number.clear();
    let unsigned = match word.strip_prefix('-') {
        Some(unsigned) => {
            number.push('-');
            unsigned
        }
        None => word.strip_prefix('+').unwrap_or(word),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => unsigned.split_at(at),
        None => (unsigned, ""),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    // Python allows `1.` and `.5`. JSON needs a zero there.
    let whole = match (whole, fraction) {
        ("", Some(fraction)) if !fraction.is_empty() => "0",
        _ => whole,
    };
    let no_padding = whole == "0" || !whole.starts_with('0');
    no_padding
        && write_digits(whole, number)
        && write_fraction(fraction, number)
        && write_exponent(exponent, number)
}

fn write_fraction(fraction: Option<&str>, number: &mut String) -> bool {
    let Some(fraction) = fraction else {
        return true;
    };
    number.push('.');
    write_digits(if fraction.is_empty() { "0" } else { fraction }, number)
}

fn write_exponent(exponent: &str, number: &mut String) -> bool {
    if exponent.is_empty() {
        return true;
    }
    let signed = &exponent[1..];
    let digits = signed.strip_prefix(['+', '-']).unwrap_or(signed);
    number.push_str(&exponent[..exponent.len() - digits.len()]);
    write_digits(digits, number)
}

/// Writes digits without the underscores that Python allows between them.
fn write_digits(digits: &str, number: &mut String) -> bool {
    digits.split('_').all(|group| {
        number.push_str(group);
        !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Option<String> {
        let mut number = String::from("before");
        write_number(word, &mut number).then_some(number)
    }

    #[test]
    fn json_numbers_stay_unchanged() {
        for same in ["0", "-0", "42", "1.50", "-1.5e10", "1E+5", "2e-07", "0.0"] {
            assert_eq!(read(same).as_deref(), Some(same));
        }
        let long = "123456789012345678901234567890";
        assert_eq!(read(long).as_deref(), Some(long));
    }

    #[test]
    fn python_numbers_become_json_numbers() {
        for (word, expected) in [
            ("+1", "1"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("-.5", "-0.5"),
            ("1.e5", "1.0e5"),
            ("1_000.2_5", "1000.25"),
            ("+.5e1_0", "0.5e10"),
        ] {
            assert_eq!(read(word).as_deref(), Some(expected), "{word}");
        }
    }

    #[test]
    fn rejects_text_that_is_no_number() {
        for word in [
            "", "nan", "inf", "-inf", "0x1F", "01", "--1", "+-1", ".", "-", "1e", "e5", "1_", "_1",
            "1__0", "1.2.3", "1j", "1e5.0", "1e+-5", ".e5", "٣",
        ] {
            assert_eq!(read(word), None, "{word}");
        }
    }
}
