//! The notice shown in place of encrypted reasoning.

/// Shown in place of encrypted reasoning in dialects that carry reasoning as text only. For display:
/// it is removed again before a request goes to a provider.
pub(crate) const NOTICE: &str = "[Some reasoning was hidden for safety reasons]";

/// Separates two pieces of reasoning that share one member.
pub(crate) const BREAK: &str = "\n\n";

/// Removes the notice, and the separators around it.
pub(crate) fn without_notice(shown: &str) -> String {
    let mut written = String::with_capacity(shown.len());
    let mut parts = shown.split(NOTICE).peekable();
    let mut after_notice = false;
    while let Some(part) = parts.next() {
        let part = match after_notice {
            true => part.strip_prefix(BREAK).unwrap_or(part),
            false => part,
        };
        written.push_str(match parts.peek() {
            Some(_) => part.strip_suffix(BREAK).unwrap_or(part),
            None => part,
        });
        after_notice = true;
    }
    written
}
