//! Decimal numbers, written without an allocation.

/// Appends the decimal digits of a number.
pub(crate) fn write_number(number: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        if let Some(slot) = digits.get_mut(at) {
            *slot = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}
