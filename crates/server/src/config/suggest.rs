//! "Did you mean": finds the known name that is nearest to a typo.

/// The known name nearest to `found`, if it is near enough. Letter case and `-` for `_` are ignored.
pub(super) fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = fold(found);
    known
        .into_iter()
        .map(|word| (distance(&folded, &fold(word)), word))
        // At most a third of the letters may differ.
        .filter(|(distance, word)| *distance <= (word.chars().count().max(folded.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

fn fold(word: &str) -> Vec<char> {
    word.chars()
        .map(|letter| if letter == '-' { '_' } else { letter })
        .flat_map(char::to_lowercase)
        .collect()
}

/// The edit distance where two swapped neighbours count once (optimal string alignment), because they
/// are the most common typo.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != other);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == *other {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_near() {
        let known = ["policy", "unknown", "orphan_threshold", "memory_limit"];
        for (found, expected) in [
            ("polciy", Some("policy")),
            ("polcy", Some("policy")),
            ("policys", Some("policy")),
            ("Policy", Some("policy")),
            ("orphan-threshold", Some("orphan_threshold")),
            ("orphan_treshhold", Some("orphan_threshold")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(found, known), expected, "{found}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        let letters = |word: &str| word.chars().collect::<Vec<_>>();
        for (left, right, edits) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abcd", "abdc", 1),
            ("kitten", "sitting", 3),
            ("same", "same", 0),
        ] {
            assert_eq!(distance(&letters(left), &letters(right)), edits, "{left} {right}");
        }
    }
}
