//! Integers in hand-written JSON.

/// Appends an integer in decimal, without an allocation.
pub(crate) fn write_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
