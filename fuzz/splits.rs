//! Cuts an input into pieces.

/// Cuts `input` into pieces whose sizes depend on its bytes alone.
///
/// The sizes are not part of the input, so a capture from `corpus/` can be a seed unchanged. Most
/// pieces are small, because readers break where pieces meet.
pub fn splits(input: &[u8]) -> Vec<&[u8]> {
    // FNV-1a, so that any change of a byte cuts elsewhere.
    let mut state = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut pieces = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let max = if state & 8 == 0 { 4 } else { 64 };
        let size = (state >> 32) as usize % max + usize::from(state & 48 != 0);
        let (piece, after) = rest.split_at(size.min(rest.len()));
        // An empty piece is a read of no bytes; it must change nothing.
        pieces.push(piece);
        rest = after;
    }
    pieces
}
